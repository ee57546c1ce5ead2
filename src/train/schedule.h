// The learning rate as a pure function of the step.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

enum class ScheduleKind : std::uint8_t { kCosine, kLinear, kConstant };

/// Steps are counters of the random numbers, which have 32 bits for them.
inline constexpr std::int64_t kMaxSteps = (std::int64_t{1} << 31) - 1;

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kCosine;
  double lr = 1e-3;         ///< Peak, after the warm-up.
  double min_lr = 0.0;      ///< Reached at the last step; unused by kConstant.
  std::int64_t warmup = 0;  ///< Steps of linear warm-up.
  std::int64_t steps = 1;   ///< Updates in the whole run.
};

/// Checks the range of every field; the message names the field, its value and the range.
Status validate(const ScheduleConfig& config);

/// The learning rate of update `step`, counted from 0. Warm-up: lr (step + 1) / (warmup + 1). After
/// that it falls from lr at step `warmup` to min_lr at step `steps - 1`, along half a cosine
/// (Loshchilov & Hutter 2017) or a line; with kConstant it stays at lr.
double learning_rate(const ScheduleConfig& config, std::int64_t step);

}  // namespace volta
