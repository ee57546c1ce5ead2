// A training run reads data and writes a folder of checkpoints, metrics and a loss curve. This is
// the policy around the Trainer: when to evaluate, save and stop, and what to do when something
// fails.
//
// RUN_DIR/run.json        the options it was started with, and the best step (train/run_folder.h)
// RUN_DIR/metrics.jsonl   one object per step (train/metrics.h)
// RUN_DIR/step-N/         checkpoints (train/checkpoint.h); each is a model folder, too
// RUN_DIR/loss.svg        the loss curve, at the end
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "device/device.h"
#include "train/run_options.h"
#include "train/settings.h"
#include "train/trainer.h"

namespace [[gnu::visibility("default")]] volta {

/// One finished update, as the caller sees it.
struct StepEvent {
  StepReport report;               ///< report.step counts from 1.
  std::int64_t steps = 0;          ///< Updates in the whole run.
  double tokens_per_s = 0.0;       ///< Of this update alone.
  std::optional<double> val_loss;  ///< Set when the step was evaluated.
};

/// How a run reports to its caller. All callbacks may be empty; all are called on the calling
/// thread.
struct RunCallbacks {
  std::function<void(const StepEvent&)> on_step;
  /// Reports what the run does, and problems that do not end it: one line, without a newline.
  std::function<void(LogLevel level, std::string_view message)> on_message;
  /// Called while text is read, and after every step. When it returns true after a step (for
  /// example because of a signal), the run writes a checkpoint and ends. The device can also
  /// interrupt a step (CpuDeviceOptions::interrupted). That step then has no effect, and the
  /// checkpoint is that of the step before.
  std::function<bool()> should_stop;
  /// Called before the first step with the number of steps done and the number of the whole run.
  std::function<void(std::int64_t done, std::int64_t steps)> on_start;
};

/// How a successful run ended.
enum class RunEnd : std::uint8_t {
  kFinished,   ///< All steps done.
  kEarlyStop,  ///< `patience` estimates without a new minimum.
};

struct RunResult {
  RunEnd end = RunEnd::kFinished;
  std::int64_t steps = 0;          ///< Updates done, with those before a resume.
  std::int64_t new_steps = 0;      ///< Updates done by this part of the run.
  std::optional<double> loss;      ///< Of the last update, possibly before a resume.
  std::optional<double> val_loss;  ///< Over all validation text, with the last weights.
  double seconds = 0.0;            ///< This part of the run, evaluation and saving included.
  std::int64_t tokens = 0;         ///< Trained on by this part of the run.
  /// The lowest validation loss and its step, from an estimate or from the last evaluation.
  std::optional<BestEstimate> best;
  /// A model folder, or an adapter's for LoRA: the best checkpoint when the run stopped early and
  /// that checkpoint was kept, otherwise the last one.
  std::string checkpoint;
};

/// Runs the training that `options` describe on `device`. A resumed run gives the same bits as one
/// that was never stopped, on the same instruction set with the same kernel parameters.
/// Every error names its cause and the remedy: kInvalidArgument for options or data that cannot
/// work, kIo when the folder is locked by another run or cannot be used, kNotFound for missing
/// files, kNonFinite when the loss is not finite (the last checkpoint is kept), kInterrupted when
/// `should_stop` returns true (the run can be resumed), kMismatch when the run to resume has other
/// settings.
/// A checkpoint, metrics file or loss curve that cannot be written is reported through on_message,
/// and training continues. The run fails only when its last checkpoint cannot be written. Weights
/// that are not finite are never saved: the run ends with kNonFinite, which names the tensor.
/// Resuming without a valid checkpoint starts at step 0. Files in the folder that cannot be used
/// are kept under other names (step-N.invalid, metrics.jsonl.old), which are reported through
/// on_message. Lines that a resumed run removes from metrics.jsonl are kept in metrics.jsonl.cut.
Result<RunResult> train(const RunOptions& options, const std::shared_ptr<Device>& device,
                        const RunCallbacks& callbacks = {});

}  // namespace volta
