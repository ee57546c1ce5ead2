// The folder of a run as those see it who want its model: which checkpoint stands for the run, and
// what run.json says about the run so far. Knows nothing of training.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"
#include "train/checkpoint.h"
#include "train/run_options.h"
#include "train/settings.h"

namespace volta {

/// What run.json records beside the options.
struct RunProgress {
  std::optional<BestEstimate> best;  ///< The lowest validation loss so far.
  bool stopped_early = false;        ///< The run ended because its patience was used up.
};

/// Writes RUN_DIR/run.json (`options.out` is the folder), atomically. kIo.
Status write_run_file(const RunOptions& options, const RunProgress& progress);
/// kNotFound when the folder has none; kInvalidFile.
Result<RunProgress> load_run_progress(const std::string& run_directory);

/// Why commands would refuse the folder of a run, apart from what is wrong with its checkpoints:
/// kInvalidArgument where it also holds a model, kNotFound for a run without a checkpoint, and the
/// errors of run.json, if there is one. Nothing where all is well, and for other folders. kIo.
Result<std::vector<Error>> check_run_folder(const std::string& path);

/// The checkpoint that stands for a run: the best one where the run stopped early, otherwise the
/// newest that verifies (also where the best one was not kept). A damaged best one is logged as a
/// warning, and the newest is taken. Nothing when there is none. `interrupted` is asked while files
/// are read, here and below: kInterrupted.
Result<std::optional<Checkpoint>> run_checkpoint(const std::string& run_directory,
                                                 const Interruption& interrupted = {});

/// The model folder that `path` names: a run's folder stands for its run_checkpoint(), a folder
/// with config.json for itself. With a manifest of Volta's beside it everything is verified first,
/// so that a damaged checkpoint is refused either way. kNotFound, and open_checkpoint's.
/// kInvalidArgument for an adapter's folder, and for a folder that holds both a model and a run.
Result<std::string> find_model_folder(const std::string& path,
                                      const Interruption& interrupted = {});
/// The same for an adapter: a folder with adapter_config.json, or a LoRA run's.
Result<std::string> find_adapter_folder(const std::string& path,
                                        const Interruption& interrupted = {});

}  // namespace volta
