// What a run needs before its first step: the folder locked, the data checked, the model and its
// trainer made or taken from a checkpoint. Internal to train/run.
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
  std::optional<DirectoryLock> lock;
  Dataset data;
  std::unique_ptr<BatchSource> batches;
  std::optional<Trainer> trainer;
  std::optional<Evaluator> evaluator;       ///< Absent without validation text.
  std::optional<RandomWindows> validation;  ///< For estimates.
  CarriedFiles carried;           ///< Of the folder that is fine-tuned, for every checkpoint.
  std::optional<BaseModel> base;  ///< Of a LoRA run.
  RunState state;
  std::string checkpoint;  ///< The one that was resumed; empty when there was none.
};

/// Tells the caller of a run something.
using Say = std::function<void(LogLevel level, const std::string& message)>;

/// A warning where the checkpoints that a run keeps will not fit the `free` bytes of their file
/// system, each taking `bytes`; empty otherwise. `there` of them are on the disk already.
std::string space_warning(const RunOptions& options, std::int64_t bytes, std::int64_t there,
                          std::int64_t free);

/// Does all of it in the order in which mistakes are cheapest. `interrupted` is asked by work on
/// text, now and later. Errors as train() says.
Result<RunSetup> set_up_run(const RunOptions& options, const std::shared_ptr<Device>& device,
                            const Interruption& interrupted, const Say& say);

}  // namespace volta
