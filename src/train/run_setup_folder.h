// What a run does with its folder before the first step: it finds out what is there, locks it, and
// moves out of the way what it would overwrite. Internal to run_setup.
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

/// What is in the way of a new run; empty when nothing is. A model's files beside checkpoints would
/// leave it open which of the two the folder stands for.
Result<std::string> obstacle(const std::string& out);

/// What a new run reads must not be what it replaces.
Status check_sources(const RunOptions& options);

/// Makes the run's folder this process's own, and tidies up after a killed one.
Status lock_folder(RunSetup& setup);

/// A checkpoint holds the checksums of what the run read: of other files nothing more is learnt
/// than that they differ. Without one, whoever wrote run.json would choose the files of this
/// machine that a model is made of. kNotFound, with the option to give, for what is not there.
Status check_recorded_paths(const RunOptions& options, const std::optional<Checkpoint>& checkpoint);

/// Gives the new run an empty folder in the place of the one that holds something else, whose lock
/// this process has.
Status replace_folder(RunSetup& setup, const Say& say);

/// Finds the checkpoint to go on from. A folder that no run has used yet is locked, and made, only
/// when everything else is known to work: a start that fails leaves nothing behind.
Result<std::optional<Checkpoint>> open_folder(RunSetup& setup, const Interruption& interrupted,
                                              const Say& say);

/// What the run would overwrite and could not be resumed from goes to other names: checkpoints that
/// do not verify, and the metrics of a run that starts again.
Status keep_unusable(const RunSetup& setup, std::int64_t first_step, const Say& say);

}  // namespace volta::run_setup
