// Opens the data of a run before the first step: its text or examples, the tokenizer and the
// batches. Internal to run_setup.
#pragma once

#include <string>

#include "base/result.h"
#include "base/work_budget.h"
#include "device/device.h"
#include "formats/model_source.h"
#include "train/run_setup.h"

namespace volta::run_setup {

/// Reads the data and fills in the options that follow from it and from `model`, the checkpoint or
/// the model to start from; null for fresh weights.
Status open_data(RunSetup& setup, const ModelSource* model, const Interruption& interrupted,
                 const Say& say);

/// For a given tokenizer.json, copies its tokenizer_config.json (end token, chat template) into the
/// run's checkpoints. It is read from `folder`, the checkpoint's; when `folder` is empty (fresh
/// weights), it is read from beside the tokenizer.json.
Status carry_tokenizer_config(RunSetup& setup, const std::string& folder);

/// Sets the sequence length, the batch (RunOptions::batch_by_memory) and the steps that the epochs
/// take, and creates the batches.
Status open_batches(RunSetup& setup, Device& device, const Say& say);

}  // namespace volta::run_setup
