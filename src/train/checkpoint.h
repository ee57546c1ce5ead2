// Checkpoints: RUN_DIR/step-N/, complete and verified, or not there at all.
//
// step-N/config.json, model.safetensors, tokenizer.json   a model folder (io/model_folder.h)
//   or, of a LoRA run, adapter_config.json, adapter_model.safetensors: an adapter (io/adapter.h)
// step-N/trainer.safetensors   the optimiser's tensors; metadata: step and the run's own state
// step-N/manifest.json         written last: versions, ISA, kernel parameters, sizes, checksums
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"
#include "io/carried_files.h"
#include "io/tokenizer.h"
#include "nn/transformer.h"
#include "tensor/tensor.h"
#include "train/trainer.h"

namespace volta {

/// The version of the layout above. Others are refused.
inline constexpr std::int64_t kCheckpointFormat = 1;

/// One file of a checkpoint, as its manifest describes it.
struct CheckpointFile {
  std::string name;
  std::int64_t bytes = 0;
  std::string xxh3;  ///< XXH3 of its bytes, 16 hexadecimal digits.
};

/// The model that an adapter belongs to.
struct BaseModel {
  std::string path;
  std::string xxh3;  ///< weights_hash(), 16 hexadecimal digits.
  bool operator==(const BaseModel&) const = default;
};
/// XXH3 over a model's weights: names, types, shapes and bytes, wherever they were loaded from.
/// kInterrupted when the model's device was told to stop.
Result<std::string> weights_hash(const Transformer& model);

/// manifest.json.
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

/// The kernel parameters of every op of a graph on a device (see CheckpointManifest::kernels).
std::vector<std::string> kernel_parameters(const Graph& graph, const Device& device);

/// A checkpoint on disk whose manifest, sizes and checksums are right.
struct Checkpoint {
  std::string path;
  CheckpointManifest manifest;
};

/// Opens and verifies a step-N folder. kNotFound without a manifest, kInvalidFile for a damaged
/// one, kUnsupported for another format version, kInterrupted when `interrupted` said so.
Result<Checkpoint> open_checkpoint(const std::string& path, const Interruption& interrupted = {});

/// Whether a folder has a manifest that is, or may have been, Volta's. Other tools write files of
/// this name, too: theirs are JSON objects without our version. kIo.
Result<bool> has_manifest(const std::string& directory);

/// The model that the adapter in a folder was trained on, as its manifest records it; nothing where
/// the folder has no manifest of Volta's. The errors of parse_manifest.
Result<std::optional<BaseModel>> recorded_base(const std::string& directory);
/// Told several times a second how many bytes of files are read, of so many; false ends the check.
using ReadCallback = std::function<bool(std::int64_t bytes, std::int64_t all)>;

/// All that is wrong with a checkpoint, where open_checkpoint() stops at the first: one error for
/// the manifest, or one a file, kMismatch where it is not as the manifest says. Nothing for a
/// folder without a manifest of Volta's, and for one whose files are right. kInterrupted when
/// `go_on` said no, kOutOfMemory.
Result<std::vector<Error>> check_checkpoint(const std::string& path,
                                            const ReadCallback& go_on = {});

/// The step-N folders of a run, newest first, unverified. Empty when the folder does not exist.
struct CheckpointPlace {
  std::int64_t step = 0;
  std::string path;
};
Result<std::vector<CheckpointPlace>> list_checkpoints(const std::string& run_directory);

/// RUN_DIR/step-N.
std::string checkpoint_path(const std::string& run_directory, std::int64_t step);

/// The newest checkpoint that verifies; each one skipped is logged as a warning that says what is
/// wrong with it. Nothing when there is none. kInterrupted when `interrupted` said so.
Result<std::optional<Checkpoint>> newest_valid_checkpoint(const std::string& run_directory,
                                                          const Interruption& interrupted = {});

/// Renames a file or folder to NAME + `suffix` (+ ".2", ".3", ... where that is taken), so that
/// what takes its place loses nothing. Returns the new path. kIo.
Result<std::string> set_aside(const std::string& path, std::string_view suffix);

/// What a checkpoint saves beside the model.
struct CheckpointContent {
  const Trainer* trainer = nullptr;
  const Tokenizer* tokenizer = nullptr;  ///< May be null.
  std::string run_state;                 ///< JSON of the run's own (train/run.cc).
  CarriedFiles carried = {};             ///< From the folder that was fine-tuned.
  std::optional<BaseModel> base = {};    ///< Of the model's adapter, when it has one.
};

/// The bytes that a checkpoint of this trainer takes, but for the small files (a few MB at most).
std::int64_t checkpoint_bytes(const Trainer& trainer);

/// Writes step-N for the trainer's N updates under a temporary name (base/temporary.h), everything
/// fsynced, reads it back from the disk, and renames it; then removes all but the `keep` newest (0:
/// keeps all) up to N, and but step-`best`. Returns its path. On failure (kIo; kInvalidFile when
/// what was read back is not what was written; kNonFinite, naming the tensor, for weights that are
/// not numbers) nothing of it stays, and earlier checkpoints are as they were.
Result<std::string> write_checkpoint(const std::string& run_directory,
                                     const CheckpointContent& content, std::int64_t keep,
                                     std::optional<std::int64_t> best = std::nullopt);

/// The model of a checkpoint, on a device. kMismatch when it is not of this architecture.
Result<Transformer> load_checkpoint_model(const Checkpoint& checkpoint,
                                          const TransformerConfig& expected,
                                          std::shared_ptr<Device> device);

/// trainer.safetensors.
struct TrainerState {
  std::int64_t step = 0;
  std::string run_state;
  std::map<std::string, Tensor> optimizer;
};
Result<TrainerState> load_trainer_state(const Checkpoint& checkpoint,
                                        const Interruption& interrupted = {});

}  // namespace volta
