// Prepares the folder of a run before the first step: finds out what it holds, locks it, and
// renames the files that the run would overwrite. Internal to run_setup.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/work_budget.h"
#include "train/checkpoint.h"
#include "train/run_options.h"
#include "train/run_setup.h"

namespace volta::run_setup {

/// Describes what prevents a new run in the folder `out`; empty when nothing does. The files of a
/// model are an obstacle too: beside checkpoints, it would be unclear whether the folder stands for
/// that model or for the run.
Result<std::string> obstacle(const std::string& out);

/// Checks that a new run does not read from a folder that it would replace. kInvalidArgument.
Status check_sources(const RunOptions& options);

/// Creates and locks the run's folder, and removes the temporary files that a killed process left
/// in it.
Status lock_folder(RunSetup& setup);

/// Checks the paths that were taken from run.json. They are safe with a checkpoint: it holds the
/// checksums of the files that the run read, so the run only reports that other files differ.
/// Without a checkpoint they are refused, because the author of run.json could choose which files
/// of this machine go into a model. kNotFound, with the option to give, for a file that is missing.
Status check_recorded_paths(const RunOptions& options, const std::optional<Checkpoint>& checkpoint);

/// Renames the run's folder, which this process has locked, to OUT.old. Then creates and locks an
/// empty folder in its place.
Status replace_folder(RunSetup& setup, const Say& say);

/// Finds the checkpoint to resume from, and locks the folder if it has been used before. Otherwise
/// set_up_run() creates and locks it after everything else has succeeded, so that a failed start
/// leaves nothing behind.
Result<std::optional<Checkpoint>> open_folder(RunSetup& setup, const Interruption& interrupted,
                                              const Say& say);

/// Renames what the run would overwrite and cannot resume from: the checkpoints after `first_step`,
/// which did not pass verification, and the metrics of a run that starts again.
Status keep_unusable(const RunSetup& setup, std::int64_t first_step, const Say& say);

}  // namespace volta::run_setup
