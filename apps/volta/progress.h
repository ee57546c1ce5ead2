// Progress of a training run on standard error: a bar on a terminal, plain lines otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"
#include "status_line.h"
#include "train/run.h"

namespace volta::cli {

class Progress {
 public:
  Progress();
  /// Shows that the first step runs, which may take long.
  void start(std::int64_t done, std::int64_t steps);
  /// Redraws the bar, or prints a line where the step was evaluated and every so often.
  void step(const StepEvent& event);
  /// A line above the bar.
  void message(LogLevel level, std::string_view text);
  /// Ends the bar's line.
  void finish();

 private:
  void draw(const StepEvent& event);

  StatusLine line_;
  double started_ = 0.0;
  double last_drawn_ = 0.0;
  std::int64_t first_step_ = -1;
  double tokens_per_s_ = 0.0;  ///< Smoothed.
  double loss_ = 0.0;          ///< Smoothed.
};

}  // namespace volta::cli
