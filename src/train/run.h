// A training run: data in, a folder of checkpoints, metrics and a loss curve out. The policy around
// the Trainer: when to evaluate, save, stop, and what to do when something fails.
//
// RUN_DIR/run.json        the options it was started with, and the best step (train/run_folder.h)
// RUN_DIR/metrics.jsonl   one object a step (train/metrics.h)
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
  std::optional<double> val_loss;  ///< Where the step was evaluated.
};

/// How a run talks to its caller. All may be empty; all are called on the calling thread.
struct RunCallbacks {
  std::function<void(const StepEvent&)> on_step;
  /// What the run does and what goes wrong without ending it: one line, without a newline.
  std::function<void(LogLevel level, std::string_view message)> on_message;
  /// Asked while text is read, and after every step. True (a signal came): a checkpoint is written
  /// and the run ends. The device can end a step within (CpuDeviceOptions::interrupted): it is as
  /// if it had not begun, and the checkpoint is that of the step before.
  std::function<bool()> should_stop;
  /// Before the first step: how many are done, and how many the whole run has.
  std::function<void(std::int64_t done, std::int64_t steps)> on_start;
};

/// Why a run ended well.
enum class RunEnd : std::uint8_t {
  kFinished,   ///< All steps done.
  kEarlyStop,  ///< `patience` estimates without a new minimum.
};

struct RunResult {
  RunEnd end = RunEnd::kFinished;
  std::int64_t steps = 0;          ///< Updates done, all parts of the run together.
  std::int64_t new_steps = 0;      ///< Updates done by this part of the run.
  std::optional<double> loss;      ///< Of the last update, be it of an earlier part of the run.
  std::optional<double> val_loss;  ///< Over all validation text, with the last weights.
  double seconds = 0.0;            ///< This part of the run, evaluation and saving included.
  std::int64_t tokens = 0;         ///< Trained on by this part of the run.
  /// The lowest validation loss, and where: of an estimate, or of the last evaluation.
  std::optional<BestEstimate> best;
  /// A model folder: the best checkpoint where the run stopped early and it was kept, the last one
  /// otherwise.
  std::string checkpoint;
};

/// Trains as told, on `device`. Resuming continues bit for bit like a run that was never stopped
/// (on the same instruction set).
/// Errors, each naming what and the remedy: kInvalidArgument for options or data that cannot work,
/// kIo when the folder is locked by another run or cannot be used, kNotFound for missing files,
/// kNonFinite when the loss stops being a number (the last checkpoint is kept), kInterrupted when
/// should_stop said so (resume goes on), kMismatch when `resume` meets a run with other settings.
/// A failing checkpoint, metrics file or loss curve is told through on_message and training goes
/// on; only when the last checkpoint fails the run fails. Weights that are not finite are never
/// saved: the run ends (kNonFinite, naming the tensor).
/// Resuming without a valid checkpoint starts at step 0; what is there and cannot be used is kept
/// under other names (step-N.invalid, metrics.jsonl.old), which on_message tells. Lines that a
/// resumed run takes out of metrics.jsonl are kept in metrics.jsonl.cut.
Result<RunResult> train(const RunOptions& options, const std::shared_ptr<Device>& device,
                        const RunCallbacks& callbacks = {});

}  // namespace volta
