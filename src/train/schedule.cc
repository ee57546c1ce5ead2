#include "train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace volta {

Status validate(const ScheduleConfig& c) {
  const auto bad = [](std::string_view what, auto value, std::string_view range) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("schedule: {} is {}; it must be {}", what, value, range));
  };
  if (c.steps < 1 || c.steps > kMaxSteps) {
    return bad("steps", c.steps, fmt::format("between 1 and {}", kMaxSteps));
  }
  if (c.warmup < 0 || c.warmup > kMaxSteps) {
    return bad("warmup", c.warmup, fmt::format("between 0 and {}", kMaxSteps));
  }
  if (!(c.lr > 0.0) || !std::isfinite(c.lr)) return bad("lr", c.lr, "a positive number");
  if (!(c.min_lr >= 0.0 && c.min_lr <= c.lr)) {
    return bad("min_lr", c.min_lr, fmt::format("between 0 and lr ({})", c.lr));
  }
  return {};
}

double learning_rate(const ScheduleConfig& c, std::int64_t step) {
  if (step < c.warmup) {
    return c.lr * static_cast<double>(step + 1) / static_cast<double>(c.warmup + 1);
  }
  if (c.kind == ScheduleKind::kConstant) return c.lr;
  const std::int64_t last = c.steps - 1;
  if (last <= c.warmup) return c.lr;
  const double part =
      std::min(1.0, static_cast<double>(step - c.warmup) / static_cast<double>(last - c.warmup));
  const double weight = c.kind == ScheduleKind::kLinear
                            ? 1.0 - part
                            : 0.5 * (1.0 + std::cos(std::numbers::pi * part));
  return c.min_lr + weight * (c.lr - c.min_lr);
}

}  // namespace volta
