// manifest.json of a checkpoint: what wrote it, on what, and the size and checksum of every file in
// the folder. Knows nothing of models and training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"

namespace volta {

/// The version of the layout of checkpoints (train/checkpoint.h). Others are refused.
inline constexpr std::int64_t kCheckpointFormat = 1;

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kTrainerFile = "trainer.safetensors";
inline constexpr std::int64_t kMaxStep = std::int64_t{1} << 40;  ///< Of a run.

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

/// What manifest.json says.
struct CheckpointManifest {
  std::int64_t format = kCheckpointFormat;
  std::string volta;      ///< Version that wrote it.
  std::int64_t step = 0;  ///< Updates done.
  std::string device;     ///< "cpu", "cuda:0".
  std::string isa;        ///< Instruction set; another one gives other bits.
  /// What else fixes the bits (Device::kernel_parameters), of every op of an update, sorted.
  std::vector<std::string> kernels;
  std::optional<BaseModel> base;  ///< Of an adapter; the checkpoint holds no other weights.
  std::vector<CheckpointFile> files;
};
std::string to_json(const CheckpointManifest& manifest);
/// Hostile input is fine: sizes, names (plain file names only) and numbers are checked.
/// kInvalidFile; kUnsupported for another format version.
Result<CheckpointManifest> parse_manifest(std::string_view json, std::string_view name);

/// The manifest of a checkpoint's folder. kNotFound where it has none, the errors of
/// parse_manifest, and kInvalidFile where the folder's name is that of another step.
Result<CheckpointManifest> read_manifest(const std::string& directory);

/// Whether a folder has a manifest that is, or may have been, Volta's. Other tools write files of
/// this name, too: theirs are JSON objects without our version. kIo.
Result<bool> has_manifest(const std::string& directory);

/// The model that the adapter in a folder was trained on, as its manifest records it; nothing where
/// the folder has no manifest of Volta's. The errors of parse_manifest.
Result<std::optional<BaseModel>> recorded_base(const std::string& directory);

/// N of "step-N", the name of a checkpoint's folder in the folder of its run; nothing for any other
/// name.
std::optional<std::int64_t> step_of(std::string_view name);

/// Every file of a folder, to be listed in its manifest. kIo, kInvalidFile.
Result<std::vector<CheckpointFile>> describe_files(const std::string& directory);

/// Whether a file in `directory` has the size and the checksum that its manifest says: kInvalidFile
/// where it has not. `go_on` is told several times a second how many of its bytes are read;
/// kInterrupted when it said no.
Status verify_file(const std::string& directory, const CheckpointFile& expected,
                   FunctionRef<bool(std::int64_t)> go_on);

}  // namespace volta
