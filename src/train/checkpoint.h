// Checkpoints: folders RUN_DIR/step-N/. A checkpoint is complete and verified, or it does not
// exist.
//
// step-N/config.json, model.safetensors, tokenizer.json   a model folder (formats/model_folder.h)
//   or, in a LoRA run, adapter_config.json, adapter_model.safetensors: an adapter
//   (formats/adapter.h)
// step-N/trainer.safetensors   the optimiser's tensors; metadata: step and the run's own state
// step-N/manifest.json         written last: versions, ISA, kernel parameters, sizes, checksums
//                              (train/checkpoint_manifest.h)
// This file finds, verifies and reads them; train/checkpoint_writer.h writes them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"
#include "nn/transformer.h"
#include "tensor/tensor.h"
#include "train/checkpoint_manifest.h"

namespace volta {

/// A checkpoint on disk whose manifest, sizes and checksums are right.
struct Checkpoint {
  std::string path;
  CheckpointManifest manifest;
};

/// Opens and verifies a step-N folder. kNotFound without a manifest, kInvalidFile for a damaged
/// checkpoint, kUnsupported for another format version, kInterrupted when `interrupted` returns
/// true.
Result<Checkpoint> open_checkpoint(const std::string& path, const Interruption& interrupted = {});

/// Called several times per second with the number of bytes read so far and the size of all files.
/// Returning false ends the check.
using ReadCallback = std::function<bool(std::int64_t bytes, std::int64_t all)>;

/// Reports everything that is wrong with a checkpoint, where open_checkpoint() stops at the first
/// problem: one error for the manifest, or one error per file. The code is kMismatch for a file
/// that differs from the manifest. The list is empty for a folder without a manifest of Volta's,
/// and when all files are right. kInterrupted when `go_on` returns false; kOutOfMemory.
Result<std::vector<Error>> check_checkpoint(const std::string& path,
                                            const ReadCallback& go_on = {});

/// A step-N folder of a run. list_checkpoints() returns them unverified, the highest step first. It
/// returns none when the run's folder does not exist.
struct CheckpointPlace {
  std::int64_t step = 0;
  std::string path;
};
Result<std::vector<CheckpointPlace>> list_checkpoints(const std::string& run_directory);

/// RUN_DIR/step-N.
std::string checkpoint_path(const std::string& run_directory, std::int64_t step);

/// Checks what trainer.safetensors holds, which a right checksum does not tell: the step, the run's
/// state, and that no value of the optimiser's tensors is one that training cannot give (NaN,
/// infinite, a negative mean of squares). Reads the file once. kInvalidFile, naming the file and
/// the tensor and saying how the run goes on; kInterrupted when `go_on` returns false.
Status check_trainer_state(const Checkpoint& checkpoint, const ReadCallback& go_on = {});

/// What a checkpoint is needed for: its model, or also the trainer's state.
enum class CheckpointUse : std::uint8_t { kModel, kResume };

/// The newest checkpoint that passes verification, with kResume also that of check_trainer_state().
/// Each checkpoint that is skipped is logged as a warning with the reason. nullopt when there is
/// none. kInterrupted when `interrupted` returns true.
Result<std::optional<Checkpoint>> newest_valid_checkpoint(
    const std::string& run_directory, const Interruption& interrupted = {},
    CheckpointUse use = CheckpointUse::kModel);

/// Loads the model of a checkpoint onto a device. kMismatch when its architecture is not
/// `expected`.
Result<Transformer> load_checkpoint_model(const Checkpoint& checkpoint,
                                          const TransformerConfig& expected,
                                          std::shared_ptr<Device> device);

/// The content of trainer.safetensors. `run_state` is JSON (train/settings.h).
struct TrainerState {
  std::int64_t step = 0;
  std::string run_state;
  std::map<std::string, Tensor> optimizer;
};
/// kInvalidFile for a file that no trainer wrote, or whose step is not that of the manifest.
Result<TrainerState> load_trainer_state(const Checkpoint& checkpoint,
                                        const Interruption& interrupted = {});

}  // namespace volta
