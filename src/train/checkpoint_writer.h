// Writes checkpoints (train/checkpoint.h), and removes those that are no longer wanted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "formats/carried_files.h"
#include "graph/graph.h"
#include "text/tokenizer.h"
#include "train/checkpoint_manifest.h"
#include "train/trainer.h"

namespace volta {

/// The kernel parameters of every op of a graph on a device (see CheckpointManifest::kernels).
std::vector<std::string> kernel_parameters(const Graph& graph, const Device& device);

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

}  // namespace volta
