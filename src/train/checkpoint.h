// Checkpoints: RUN_DIR/step-N/, complete and verified, or not there at all.
//
// step-N/config.json, model.safetensors, tokenizer.json   a model folder (formats/model_folder.h)
//   or, of a LoRA run, adapter_config.json, adapter_model.safetensors: an adapter
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
/// one, kUnsupported for another format version, kInterrupted when `interrupted` said so.
Result<Checkpoint> open_checkpoint(const std::string& path, const Interruption& interrupted = {});

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
