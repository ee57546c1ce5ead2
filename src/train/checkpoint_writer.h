// Writes checkpoints (train/checkpoint.h) and removes old ones.
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

/// The content of a checkpoint.
struct CheckpointContent {
  const Trainer* trainer = nullptr;
  const Tokenizer* tokenizer = nullptr;  ///< May be null.
  std::string run_state;                 ///< JSON of a RunState (train/settings.h).
  CarriedFiles carried = {};             ///< Copied from the model folder that is fine-tuned.
  std::optional<BaseModel> base = {};    ///< Base model; set only for an adapter.
};

/// The size in bytes of a checkpoint of this trainer, without its small files (a few MB at most).
std::int64_t checkpoint_bytes(const Trainer& trainer);

/// Writes the checkpoint step-N, where N is the trainer's number of updates. The files are written
/// under a temporary name (base/temporary.h), fsynced and read back from the disk; then the folder
/// is renamed. After that, all checkpoints up to N are removed except the `keep` newest (0: keeps
/// all) and step-`best`. Returns the path. On failure nothing of it stays, and earlier checkpoints
/// are unchanged: kIo; kInvalidFile when the files that are read back differ from those written;
/// kNonFinite, naming the tensor, for weights or moments that are not finite.
Result<std::string> write_checkpoint(const std::string& run_directory,
                                     const CheckpointContent& content, std::int64_t keep,
                                     std::optional<std::int64_t> best = std::nullopt);

}  // namespace volta
