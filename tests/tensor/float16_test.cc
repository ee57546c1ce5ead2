// bf16 and f16 conversions, against every bit pattern and against an independent rounding.
#include "tensor/float16.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

namespace volta {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// True when `chosen` is nearest to `value` among its neighbours in bit order, ties to even.
template <typename ToFloat>
bool nearest_even(double value, std::uint16_t chosen, ToFloat to_float) {
  const double error = std::abs(to_float(chosen) - value);
  for (const int step : {-1, 1}) {
    const auto neighbour = static_cast<std::uint16_t>(chosen + step);
    if (((neighbour ^ chosen) & 0x8000u) != 0) continue;  // Stepped over zero or past the end.
    const double other = to_float(neighbour);
    if (!std::isfinite(other)) continue;
    const double distance = std::abs(other - value);
    if (distance < error || (distance == error && (chosen & 1u) != 0)) return false;
  }
  return true;
}

TEST(Float16, EveryHalfSurvivesARoundTrip) {
  for (std::uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = f32_from_f16(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(value))));
    } else {
      ASSERT_EQ(f16_from_f32(value), bits);
    }
  }
}

TEST(Float16, EveryBf16SurvivesARoundTrip) {
  for (std::uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = f32_from_bf16(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(value))));
    } else {
      ASSERT_EQ(bf16_from_f32(value), bits);
    }
  }
}

TEST(Float16, KnownValues) {
  EXPECT_EQ(f32_from_f16(0x3C00), 1.0f);
  EXPECT_EQ(f32_from_f16(0xC000), -2.0f);
  EXPECT_EQ(f32_from_f16(0x7BFF), 65504.0f);
  EXPECT_EQ(f32_from_f16(0x0001), 0x1p-24f);
  EXPECT_EQ(f32_from_f16(0x8001), -0x1p-24f);
  EXPECT_EQ(f32_from_f16(0x7C00), kInf);
  EXPECT_EQ(f16_from_f32(65519.9f), 0x7BFF);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7C00);
  EXPECT_EQ(f16_from_f32(-kInf), 0xFC00);
  EXPECT_EQ(f16_from_f32(0x1p-25f), 0x0000);         // A tie goes to even: zero.
  EXPECT_EQ(f16_from_f32(0x1.000002p-25f), 0x0001);  // Just above it.
  EXPECT_EQ(f16_from_f32(-0x1p-30f), 0x8000);
  EXPECT_EQ(bf16_from_f32(1.0f), 0x3F80);
  EXPECT_EQ(bf16_from_f32(1.00390625f), 0x3F80);  // A tie: 1 + 2^-8 goes to even.
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(bf16_from_f32(-kInf), 0xFF80);
}

TEST(Float16, NanNeverBecomesInfinity) {
  for (const std::uint32_t payload : {0x7F800001u, 0xFF800001u, 0x7FFFFFFFu, 0x7FC00000u}) {
    const float nan = std::bit_cast<float>(payload);
    EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(nan))));
    EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(nan))));
    EXPECT_EQ(std::signbit(f32_from_f16(f16_from_f32(nan))), std::signbit(nan));
  }
}

RC_GTEST_PROP(Float16Property, RoundsToNearestEven, ()) {
  const float value = std::bit_cast<float>(*rc::gen::arbitrary<std::uint32_t>());
  RC_PRE(std::isfinite(value));
  // Above the largest bf16 there is no neighbour to compare with.
  if (std::abs(value) < 0x1.FEp127f) {
    RC_ASSERT(nearest_even(value, bf16_from_f32(value), f32_from_bf16));
  }
  if (std::abs(value) < 65520.0f) RC_ASSERT(nearest_even(value, f16_from_f32(value), f32_from_f16));
}

// Uniform bits are rarely in the range of halves: this one stays there, subnormals included.
RC_GTEST_PROP(Float16Property, RoundsToNearestEvenInTheRangeOfHalves, ()) {
  const int exponent = *rc::gen::inRange(-27, 16);
  const auto fraction = static_cast<float>(*rc::gen::inRange(0, 1 << 23)) * 0x1p-23f;
  const float value =
      std::ldexp(1.0f + fraction, exponent) * (*rc::gen::arbitrary<bool>() ? 1 : -1);
  if (std::abs(value) < 65520.0f) RC_ASSERT(nearest_even(value, f16_from_f32(value), f32_from_f16));
}

}  // namespace
}  // namespace volta
