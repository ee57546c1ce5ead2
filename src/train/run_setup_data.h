// The data of a run before the first step: its text or examples, the tokenizer, the batches.
// Internal to run_setup.
#pragma once

#include <string>

#include "base/result.h"
#include "base/work_budget.h"
#include "train/run_setup.h"

namespace volta::run_setup {

/// Reads the data and completes the options with what follows from it and from the model folder (of
/// the checkpoint, or the one to start from; empty for fresh weights).
Status open_data(RunSetup& setup, const std::string& folder, const Interruption& interrupted,
                 const Say& say);

/// A tokenizer.json of others comes with what its tokenizer_config.json says: end token, template.
/// `folder` is the checkpoint's; empty for fresh weights.
Status carry_tokenizer_config(RunSetup& setup, const std::string& folder);

/// The length of a sequence, and the batches.
Status open_batches(RunSetup& setup);

}  // namespace volta::run_setup
