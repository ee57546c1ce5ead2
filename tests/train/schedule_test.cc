#include "train/schedule.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;

TEST(Schedule, WarmsUpAndFallsAlongHalfACosine) {
  const ScheduleConfig c{
      .kind = ScheduleKind::kCosine, .lr = 1.0, .min_lr = 0.1, .warmup = 4, .steps = 15};
  EXPECT_DOUBLE_EQ(learning_rate(c, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(c, 3), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(c, 4), 1.0);
  EXPECT_NEAR(learning_rate(c, 9), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(c, 6), 0.1 + 0.45 * (1.0 + std::cos(0.2 * std::numbers::pi)), 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(c, 14), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(c, 99), 0.1);
}

TEST(Schedule, FallsAlongALineOrNotAtAll) {
  ScheduleConfig c{
      .kind = ScheduleKind::kLinear, .lr = 1.0, .min_lr = 0.0, .warmup = 0, .steps = 11};
  EXPECT_DOUBLE_EQ(learning_rate(c, 0), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(c, 5), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(c, 10), 0.0);
  c.kind = ScheduleKind::kConstant;
  EXPECT_DOUBLE_EQ(learning_rate(c, 10), 1.0);
}

TEST(Schedule, WarmUpAsLongAsTheRunNeverFalls) {
  const ScheduleConfig c{.lr = 1.0, .min_lr = 0.1, .warmup = 5, .steps = 5};
  EXPECT_DOUBLE_EQ(learning_rate(c, 4), 5.0 / 6.0);
  EXPECT_DOUBLE_EQ(learning_rate({.lr = 1.0, .steps = 1}, 0), 1.0);
}

TEST(Schedule, RefusesWhatCannotWork) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(validate(ScheduleConfig{}));
  expect_error(validate(ScheduleConfig{.steps = 0}), ErrorCode::kInvalidArgument, "steps is 0");
  expect_error(validate(ScheduleConfig{.warmup = -1}), ErrorCode::kInvalidArgument, "warmup is -1");
  expect_error(validate(ScheduleConfig{.warmup = std::numeric_limits<std::int64_t>::max()}),
               ErrorCode::kInvalidArgument, "between 0 and 2147483647");
  expect_error(validate(ScheduleConfig{.lr = 0.0}), ErrorCode::kInvalidArgument, "lr is 0");
  expect_error(validate(ScheduleConfig{.lr = nan}), ErrorCode::kInvalidArgument, "lr is nan");
  expect_error(validate(ScheduleConfig{.lr = INFINITY}), ErrorCode::kInvalidArgument, "lr is inf");
  expect_error(validate(ScheduleConfig{.lr = 1.0, .min_lr = 2.0}), ErrorCode::kInvalidArgument,
               "min_lr is 2; it must be between 0 and lr (1)");
  expect_error(validate(ScheduleConfig{.min_lr = nan}), ErrorCode::kInvalidArgument, "min_lr");
}

}  // namespace
}  // namespace volta
