// Shows the steps of a training run on standard error: a bar on a terminal, lines elsewhere.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/log.h"
#include "progress.h"
#include "train/run.h"

namespace volta::cli {

class TrainingProgress {
 public:
  /// Shows that the first step is running, which may take long.
  void start(std::int64_t done, std::int64_t steps);
  /// Redraws the bar, or prints a line after an evaluation and at intervals.
  void step(const StepEvent& event);
  /// A line above the bar.
  void message(LogLevel level, std::string_view text) { progress_.message(level, text); }
  /// Ends the bar's line.
  void finish() { progress_.keep(); }

 private:
  Progress progress_;
  double started_ = 0.0;  ///< When the first step ended.
  std::int64_t first_step_ = -1;
  double tokens_per_s_ = 0.0;  ///< Smoothed.
};

}  // namespace volta::cli
