#include "base/clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace volta {
namespace {

TEST(ClockTest, AdvancesInBothUnits) {
  const int64_t nanoseconds = monotonic_nanoseconds();
  const double seconds = monotonic_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(monotonic_nanoseconds() - nanoseconds, 5'000'000);
  EXPECT_GE(monotonic_seconds() - seconds, 0.0049);
  EXPECT_LT(monotonic_seconds() - seconds, 60.0);
}

}  // namespace
}  // namespace volta
