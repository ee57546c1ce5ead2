#include "base/arithmetic.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace volta {
namespace {

constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
constexpr auto kMostUnsigned = std::numeric_limits<std::uint64_t>::max();

TEST(Arithmetic, SmallNumbersAreDividedAndRoundedUp) {
  for (std::int64_t value = 0; value < 200; ++value) {
    for (std::int64_t unit = 1; unit < 40; ++unit) {
      EXPECT_EQ(ceil_div(value, unit), (value + unit - 1) / unit) << value << " / " << unit;
      EXPECT_EQ(round_up(value, unit), (value + unit - 1) / unit * unit) << value << " / " << unit;
    }
  }
}

// Under UBSan, the sum that these avoid would be reported.
TEST(Arithmetic, LargeNumbersDoNotOverflow) {
  static_assert(ceil_div(kMost, 2) == kMost / 2 + 1);
  static_assert(ceil_div(kMost, kMost) == 1);
  static_assert(ceil_div(kMost - 1, kMost) == 1);
  static_assert(ceil_div(kMost, 1) == kMost);
  static_assert(ceil_div(kMostUnsigned, 2u) == kMostUnsigned / 2 + 1);
  EXPECT_EQ(round_up(kMost - 63, 64), kMost - 63);  // 2^63 - 64.
  EXPECT_EQ(round_up(kMost - 64, 64), kMost - 63);
  EXPECT_EQ(round_up(kMost, 1), kMost);
}

TEST(Arithmetic, AMultipleThatDoesNotFitIsTheLargestNumber) {
  static_assert(round_up(kMost - 62, 64) == kMost);
  static_assert(round_up(kMost, 2) == kMost);
  static_assert(round_up(1, kMost) == kMost);
  static_assert(round_up(kMostUnsigned, 4096u) == kMostUnsigned);
  EXPECT_EQ(round_up(kMostUnsigned - 4095, 4096u), kMostUnsigned - 4095);
}

TEST(Arithmetic, TheResultHasTheWiderType) {
  static_assert(std::is_same_v<decltype(ceil_div(1, std::int64_t{2})), std::int64_t>);
  static_assert(std::is_same_v<decltype(round_up(std::uint64_t{1}, 2u)), std::uint64_t>);
  EXPECT_EQ(ceil_div(std::int64_t{1} << 40, 3), 366503875926);
}

TEST(Arithmetic, PartsCoverTheRangeAndDifferByOneAtMost) {
  for (const std::int64_t n : {0, 1, 7, 64, 1000}) {
    for (const std::int64_t parts : {1, 3, 7, 64}) {
      EXPECT_EQ(part_begin(n, parts, std::int64_t{0}), 0);
      EXPECT_EQ(part_begin(n, parts, parts), n);
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t size = part_begin(n, parts, part + 1) - part_begin(n, parts, part);
        EXPECT_TRUE(size == n / parts || size == n / parts + 1) << n << ", " << parts;
      }
    }
  }
}

}  // namespace
}  // namespace volta
