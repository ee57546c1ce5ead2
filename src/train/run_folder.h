// Finds the model in the folder of a run: which checkpoint represents the run, and what run.json
// records of its progress. Knows nothing of training.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"
#include "train/checkpoint.h"
#include "train/run_options.h"
#include "train/settings.h"

namespace volta {

/// Names in the folder of a run, besides run.json and its checkpoints.
inline constexpr std::string_view kMetricsFile = "metrics.jsonl";
inline constexpr std::string_view kLossPlotFile = "loss.svg";
inline constexpr std::string_view kTensorboardFolder = "tensorboard";

/// Whether a folder holds a run: a checkpoint, run.json or metrics. kIo.
Result<bool> holds_run(const std::string& directory);

/// Whether `path` lies where a run writes its files: in the folder of a run under a name of such a
/// file (also one that the run has renamed or cut from, such as metrics.jsonl.old), or anywhere in
/// its checkpoints and its tensorboard/ folder. Links in the folder's path are followed. kIo.
Result<bool> is_place_of_run_file(const std::string& path);

/// The progress of a run, which run.json records beside the options.
struct RunProgress {
  std::optional<BestEstimate> best;  ///< The lowest validation loss so far.
  bool stopped_early = false;        ///< The run ended because its patience was used up.
};

/// Writes RUN_DIR/run.json (`options.out` is the folder), atomically. kIo.
Status write_run_file(const RunOptions& options, const RunProgress& progress);
/// Reads the progress from RUN_DIR/run.json. kNotFound when there is no such file; kInvalidFile.
Result<RunProgress> load_run_progress(const std::string& run_directory);

/// Reports why commands would refuse the folder of a run, apart from problems in its checkpoints:
/// kInvalidArgument when it also holds a model, kNotFound when the run has no checkpoint, and the
/// errors of run.json, if there is one. Empty when there is no such problem, and for folders of
/// other kinds. kIo.
Result<std::vector<Error>> check_run_folder(const std::string& path);

/// The checkpoint that represents a run. This is the best one when the run stopped early and kept
/// it, otherwise the newest that passes verification. When the best one is damaged, a warning is
/// logged and the newest is taken. nullopt when there is none. `interrupted` is called while files
/// are read, here and below; kInterrupted when it returns true.
Result<std::optional<Checkpoint>> run_checkpoint(const std::string& run_directory,
                                                 const Interruption& interrupted = {});

/// The model folder that `path` names. For the folder of a run this is its run_checkpoint(); a
/// folder with config.json is returned itself. When that folder has a manifest of Volta's,
/// everything is verified first, so that a damaged checkpoint is refused in both cases. kNotFound,
/// and the errors of open_checkpoint(). kInvalidArgument for an adapter's folder, and for a folder
/// that holds both a model and a run.
Result<std::string> find_model_folder(const std::string& path,
                                      const Interruption& interrupted = {});
/// The same for an adapter: a folder with adapter_config.json, or the folder of a LoRA run.
Result<std::string> find_adapter_folder(const std::string& path,
                                        const Interruption& interrupted = {});

}  // namespace volta
