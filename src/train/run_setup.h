// Prepares a run for its first step: locks the folder, checks the data, and creates the model and
// its trainer or loads them from a checkpoint. Internal to train/run.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/log.h"
#include "base/result.h"
#include "device/device.h"
#include "formats/carried_files.h"
#include "train/checkpoint.h"
#include "train/dataset.h"
#include "train/evaluator.h"
#include "train/run_options.h"
#include "train/settings.h"
#include "train/trainer.h"

namespace volta {

struct RunSetup {
  RunOptions options;  ///< With every size filled in.
  /// The length of the rows that are trained on: options.trainer.time, or fewer tokens where no
  /// conversation is as long. It follows from the data, so that it is not recorded.
  std::int64_t row_tokens = 0;
  std::optional<DirectoryLock> lock;
  Dataset data;
  std::unique_ptr<BatchSource> batches;
  std::optional<Trainer> trainer;
  std::optional<Evaluator> evaluator;       ///< Absent without data to validate with.
  std::optional<RandomWindows> validation;  ///< Of text, for estimates.
  CarriedFiles carried;           ///< Copied from the fine-tuned folder into every checkpoint.
  std::optional<BaseModel> base;  ///< The base model of a LoRA run.
  RunState state;
  std::string checkpoint;  ///< Path of the last good checkpoint; empty before the first.
};

/// Reports a message to the caller of a run.
using Say = std::function<void(LogLevel level, const std::string& message)>;

/// A warning when the checkpoints that a run keeps will not fit into the `free` bytes of their file
/// system; otherwise empty. Each checkpoint takes `bytes`, and `there` of them exist already.
std::string space_warning(const RunOptions& options, std::int64_t bytes, std::int64_t there,
                          std::int64_t free);

/// Sets up the run. Cheap checks come first, so that mistakes are reported early. Work on text
/// calls `interrupted`, also after this function has returned. The errors of train().
Result<RunSetup> set_up_run(const RunOptions& options, const std::shared_ptr<Device>& device,
                            const Interruption& interrupted, const Say& say);

}  // namespace volta
