// manifest.json of a checkpoint: which version wrote it, on which device, and the size and checksum
// of every file in the folder. This file knows nothing of models and training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"

namespace volta {

/// The version of the checkpoint layout (train/checkpoint.h). Other versions are refused.
inline constexpr std::int64_t kCheckpointFormat = 1;

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kTrainerFile = "trainer.safetensors";

/// One file of a checkpoint, as its manifest describes it.
struct CheckpointFile {
  std::string name;
  std::int64_t bytes = 0;
  std::string xxh3;  ///< XXH3 of its bytes, 16 hexadecimal digits.
};

/// The model that an adapter belongs to.
struct BaseModel {
  std::string path;
  std::string xxh3;  ///< weights_hash() (train/adapter_base.h), 16 hexadecimal digits.
  bool operator==(const BaseModel&) const = default;
};

/// The content of manifest.json.
struct CheckpointManifest {
  std::int64_t format = kCheckpointFormat;
  std::string volta;      ///< Version that wrote it.
  std::int64_t step = 0;  ///< Updates done.
  std::string device;     ///< "cpu", "cuda:0".
  std::string isa;        ///< Instruction set; results on another one differ in bits.
  /// What else the bits of the results depend on: Device::kernel_parameters of every op of an
  /// update, sorted.
  std::vector<std::string> kernels;
  std::optional<BaseModel> base;  ///< Of an adapter, which is stored without its base.
  std::vector<CheckpointFile> files;
};
std::string to_json(const CheckpointManifest& manifest);
/// Safe for hostile input: sizes, names (plain file names only) and numbers are checked.
/// kInvalidFile; kUnsupported for another format version.
Result<CheckpointManifest> parse_manifest(std::string_view json, std::string_view name);

/// The manifest in a checkpoint's folder. kNotFound when there is none, the errors of
/// parse_manifest(), and kInvalidFile when the folder's name has another step number.
Result<CheckpointManifest> read_manifest(const std::string& directory);

/// Whether a folder has a manifest that Volta wrote, or may have written if it is damaged. Other
/// tools also write files of this name; theirs are JSON objects without the member "volta". kIo.
Result<bool> has_manifest(const std::string& directory);

/// The model that the adapter in a folder was trained on, as its manifest records it. nullopt when
/// the folder has no manifest of Volta's, or the manifest names no base. The errors of
/// read_manifest().
Result<std::optional<BaseModel>> recorded_base(const std::string& directory);

/// The step N in "step-N", the name of a checkpoint's folder in its run's folder. nullopt for any
/// other name.
std::optional<std::int64_t> step_of(std::string_view name);

/// The name, size and checksum of every file in a folder, for its manifest. kIo, kInvalidFile.
Result<std::vector<CheckpointFile>> describe_files(const std::string& directory);

/// Checks that a file in `directory` has the size and the checksum of its manifest entry;
/// kInvalidFile when it has not. `go_on` is called several times per second with the number of
/// bytes read; kInterrupted when it returns false.
Status verify_file(const std::string& directory, const CheckpointFile& expected,
                   FunctionRef<bool(std::int64_t)> go_on);

}  // namespace volta
