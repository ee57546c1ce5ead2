// The shared vector helpers, on every instruction set: loads and stores of each type at every
// remainder, and the functions against the C library in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

#include "attention_fixture.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"
#include "tensor/float16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/attention_blocks-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/simd.h"

#ifndef VOLTA_TESTS_KERNELS_MATH_TEST_FUNCTION
#define VOLTA_TESTS_KERNELS_MATH_TEST_FUNCTION
namespace volta::test {
enum class Function {
  kExp,
  kExpWeight,
  kSigmoid,
  kTanh,
  kExp2,
  kLog,
  kNormalTail,
  kGelu,
  kGeluSlope,
  kGeluTanh,
  kSilu,
  kRelu
};
}
#endif

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

V32 apply_vector(test::Function function, F32 d, V32 x) {
  switch (function) {
    case test::Function::kExp:
      return exp(d, x);
    case test::Function::kExpWeight:
      return attention::exp_weight(x);
    case test::Function::kSigmoid:
      return sigmoid(d, x);
    case test::Function::kTanh:
      return tanh(d, x);
    case test::Function::kExp2:
      return exp2(d, x);
    case test::Function::kLog:
      return log(d, x);
    case test::Function::kNormalTail:
      return normal_tail(d, x);
    case test::Function::kGelu:
      return gelu(d, x);
    case test::Function::kGeluSlope:
      return Gelu::slope(d, x);
    case test::Function::kGeluTanh:
      return gelu_tanh(d, x);
    case test::Function::kSilu:
      return silu(d, x);
    case test::Function::kRelu:
      return relu(d, x);
  }
  return x;
}

void apply_all(test::Function function, const float* x, std::int64_t n, float* y) {
  const F32 d;
  std::int64_t i = 0;
  for (; i + lanes(d) <= n; i += lanes(d)) {
    store(d, apply_vector(function, d, load(d, x + i)), y + i);
  }
  if (i < n) store_n(d, apply_vector(function, d, load_n(d, x + i, n - i)), y + i, n - i);
}

/// Reads n elements, whole vectors first, and writes them as f32 and as T again.
template <typename T>
void copy_all(const T* x, std::int64_t n, float* wide, T* narrow) {
  const F32 d;
  std::int64_t i = 0;
  for (; i + lanes(d) <= n; i += lanes(d)) {
    store(d, load(d, x + i), wide + i);
    store(d, load(d, x + i), narrow + i);
  }
  store_n(d, load_n(d, x + i, n - i), wide + i, n - i);
  store_n(d, load_n(d, x + i, n - i), narrow + i, n - i);
}

template <typename T>
void narrow_all(const float* x, std::int64_t n, T* y) {
  const F32 d;
  for (std::int64_t i = 0; i + lanes(d) <= n; i += lanes(d)) store(d, load(d, x + i), y + i);
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

void apply(Simd simd, test::Function function, const std::vector<float>& x, float* y) {
  VOLTA_SIMD_CALL(simd, apply_all, function, x.data(), static_cast<std::int64_t>(x.size()), y);
}
template <typename T>
void copy(Simd simd, const std::vector<T>& x, std::vector<float>& wide, std::vector<T>& narrow) {
  VOLTA_SIMD_CALL(simd, copy_all<T>, x.data(), static_cast<std::int64_t>(x.size()), wide.data(),
                  narrow.data());
}
template <typename T>
void narrow(Simd simd, const std::vector<float>& x, std::vector<T>& y) {
  VOLTA_SIMD_CALL(simd, narrow_all<T>, x.data(), static_cast<std::int64_t>(x.size()), y.data());
}

}  // namespace volta::cpu

namespace volta::test {
namespace {

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

std::vector<float> apply(cpu::Simd simd, Function function, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  cpu::apply(simd, function, x, y.data());
  return y;
}

/// Evenly spaced values, and where 0 is among them small ones of both signs.
std::vector<float> range(double begin, double end, double step) {
  std::vector<float> values;
  for (double x = begin; x <= end; x += step) values.push_back(static_cast<float>(x));
  for (double x = 1e-9; x < 1 && begin < 0 && end > 0; x *= 1.1) {
    values.push_back(static_cast<float>(x));
    values.push_back(static_cast<float>(-x));
  }
  return values;
}

/// The largest relative error, in units of 2^-24 (half an ulp at worst).
void expect_accurate(Function function, const std::vector<float>& x,
                     const std::function<double(double)>& exact, double units) {
  for (const cpu::Simd simd : available_simd()) {
    SCOPED_TRACE(cpu::simd_name(simd));
    const std::vector<float> y = apply(simd, function, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = exact(static_cast<double>(x[i]));
      ASSERT_LE(std::abs(static_cast<double>(y[i]) - expected),
                units * 0x1p-24 * std::abs(expected) + 0x1p-149)
          << "at " << x[i];
    }
  }
}

double phi(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

TEST(Math, ExpIsAccurate) {
  const auto exact = [](double x) { return std::exp(x); };
  expect_accurate(Function::kExp, range(-87.3, 88.7, 1e-3), exact, 2);
}

TEST(Math, PowersOfTwoAreAccurate) {
  const auto exact = [](double x) { return std::exp2(x); };
  expect_accurate(Function::kExp2, range(-126, 127, 1e-3), exact, 4);
  expect_accurate(Function::kExp2, {-INFINITY, -1e30f, -250, -160, -149, -140.5f, -127.5f}, exact,
                  0x1p23);
}

TEST(Math, LogarithmIsAccurateAtEveryFloat) {
  const auto exact = [](double x) { return std::log(x); };
  expect_accurate(Function::kLog, range(1e-3, 3, 1e-5), exact, 3);
  std::vector<float> x;  // Subnormal numbers among them.
  for (std::uint32_t bits = 1; bits < bits_of(INFINITY); bits += 4051) {
    x.push_back(std::bit_cast<float>(bits));
  }
  expect_accurate(Function::kLog, x, exact, 3);
  for (const cpu::Simd simd : available_simd()) {
    const std::vector<float> y =
        apply(simd, Function::kLog, {0.0f, -0.0f, 1.0f, INFINITY, -1.0f, -1e-40f, -INFINITY});
    EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 4),
              (std::vector<float>{-INFINITY, -INFINITY, 0.0f, INFINITY}));
    for (std::size_t i = 4; i < y.size(); ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  }
}

/// The largest error among floats from `first` to `last` (both negative or both positive, the one
/// nearer to 0 first), every few of them, in units in the last place of the exact result.
double worst_ulp(cpu::Simd simd, Function function, float first, float last,
                 double (*function_of)(double) = std::exp) {
  std::vector<float> x;
  for (std::uint32_t bits = bits_of(first); bits <= bits_of(last); bits += 1999) {
    x.push_back(std::bit_cast<float>(bits));
  }
  const std::vector<float> y = apply(simd, function, x);
  double worst = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = function_of(static_cast<double>(x[i]));
    // Of the result's binade; below 2^-126 the spacing is that of the subnormal numbers.
    const double ulp = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - exact) / ulp);
  }
  return worst;
}

TEST(Math, ExponentialsAreWithinTwoUlp) {
  for (const cpu::Simd simd : available_simd()) {
    SCOPED_TRACE(cpu::simd_name(simd));
    EXPECT_LE(worst_ulp(simd, Function::kExp, 0x1p-40f, 88.7f), 2.0);
    EXPECT_LE(worst_ulp(simd, Function::kExp, -0x1p-40f, -104.0f), 2.0);
    EXPECT_LE(worst_ulp(simd, Function::kExpWeight, 0x1p-40f, 1.0f), 2.0);
    EXPECT_LE(worst_ulp(simd, Function::kExpWeight, -0x1p-40f, -87.0f), 2.0);
    // A weight that small is as good as none.
    EXPECT_LE(apply(simd, Function::kExpWeight, {-1000.0f})[0], 1.7e-38f);
  }
}

TEST(Math, PowersOfTwoAreWithinThreeUlp) {
  for (const cpu::Simd simd : available_simd()) {
    SCOPED_TRACE(cpu::simd_name(simd));
    // SSE4 has no FMA: its polynomial rounds twice as often.
    const double limit = simd == cpu::Simd::kSse4 ? 3.1 : 3.0;
    EXPECT_LE(worst_ulp(simd, Function::kExp2, 0x1p-40f, 126.5f, std::exp2), limit);
    EXPECT_LE(worst_ulp(simd, Function::kExp2, -0x1p-40f, -150.0f, std::exp2), limit);
  }
}

TEST(Math, ExpUnderflowsGradually) {
  for (const cpu::Simd simd : available_simd()) {
    const std::vector<float> x = range(-110, -87, 1e-2);
    const std::vector<float> y = apply(simd, Function::kExp, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(y[i], std::exp(static_cast<double>(x[i])), 0x1p-148) << x[i];
    }
  }
}

TEST(Math, SigmoidTanhAndNormalTailAreAccurate) {
  expect_accurate(
      Function::kSigmoid, range(-80, 20, 1e-3), [](double x) { return 1 / (1 + std::exp(-x)); }, 3);
  expect_accurate(Function::kTanh, range(-12, 12, 1e-4), [](double x) { return std::tanh(x); }, 3);
  const auto tail = [](double a) { return phi(-a); };
  expect_accurate(Function::kNormalTail, range(0, 4, 1e-4), tail, 34);
  expect_accurate(Function::kNormalTail, range(4, 9, 1e-4), tail, 170);
  expect_accurate(Function::kNormalTail, range(9, 12.5, 1e-4), tail, 1700);
}

TEST(Math, ActivationsAreAccurate) {
  expect_accurate(
      Function::kGeluTanh, range(-4, 9, 1e-4),
      [](double x) {
        const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
        return x / (1 + std::exp(-2 * u));
      },
      40);
  expect_accurate(
      Function::kSilu, range(-80, 20, 1e-3), [](double x) { return x / (1 + std::exp(-x)); }, 4);
  expect_accurate(Function::kRelu, range(-3, 3, 0.1), [](double x) { return x > 0 ? x : 0; }, 0);
}

/// Every so many of all floats of both signs, infinities and NaNs among them.
std::vector<float> floats() {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 4051) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  return values;
}

TEST(Math, GeluAndItsSlopeAreAccurateAtEveryFloat) {
  const auto gelu = [](double x) { return x * phi(x); };
  expect_accurate(Function::kGelu, range(-4, 15, 1e-4), gelu, 35);
  expect_accurate(Function::kGelu, range(-9, -4, 1e-4), gelu, 172);
  const std::vector<float> x = floats();
  for (const cpu::Simd simd : available_simd()) {
    SCOPED_TRACE(cpu::simd_name(simd));
    const std::vector<float> y = apply(simd, Function::kGelu, x);
    const std::vector<float> slope = apply(simd, Function::kGeluSlope, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(y[i]) && std::isnan(slope[i]));
        continue;
      }
      // In the limit: infinity, and 0 from below.
      const double at = std::max(static_cast<double>(x[i]), -40.0);
      const double units = at < -12.5 ? 0x1p24 : at < -9 ? 1700 : at < -4 ? 172 : 35;
      const double exact = at * phi(at);
      if (!std::isinf(exact)) {
        const double bound = units * 0x1p-24 * std::abs(exact) + 0x1p-148;
        ASSERT_LE(std::abs(y[i] - gelu(at)), bound) << "at " << x[i];
      } else {
        ASSERT_EQ(y[i], INFINITY);
      }
      ASSERT_TRUE(x[i] > 0 ? y[i] >= 0 : y[i] <= 0) << "at " << x[i];
      // The slope's two terms have opposite signs on the left.
      const double term = at * std::exp(-at * at / 2) / std::sqrt(2 * std::numbers::pi);
      const double bound = units * 0x1p-24 * (phi(at) + std::abs(term)) + 0x1p-148;
      ASSERT_LE(std::abs(slope[i] - (phi(at) + term)), bound) << "at " << x[i];
    }
  }
}

TEST(Math, SpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const cpu::Simd simd : available_simd()) {
    SCOPED_TRACE(cpu::simd_name(simd));
    const std::vector<float> ends = {-kInf, kInf, -1000.0f, 1000.0f, 0.0f};
    EXPECT_EQ(apply(simd, Function::kExp, ends), (std::vector<float>{0, kInf, 0, kInf, 1}));
    EXPECT_EQ(apply(simd, Function::kSigmoid, ends), (std::vector<float>{0, 1, 0, 1, 0.5f}));
    EXPECT_EQ(apply(simd, Function::kTanh, ends), (std::vector<float>{-1, 1, -1, 1, 0}));
    EXPECT_EQ(apply(simd, Function::kRelu, ends), (std::vector<float>{0, kInf, 0, 1000, 0}));
    for (int f = 0; f <= static_cast<int>(Function::kRelu); ++f) {
      const auto function = static_cast<Function>(f);
      const float nan = std::numeric_limits<float>::quiet_NaN();
      const std::vector<float> y = apply(simd, function, {1, nan, 1});
      EXPECT_TRUE(std::isnan(y[1])) << f;
      EXPECT_FALSE(std::isnan(y[0]) || std::isnan(y[2])) << f;
    }
  }
}

TEST(Math, ALaneDoesNotDependOnItsPlace) {
  for (const cpu::Simd simd : available_simd()) {
    const std::vector<float> x = range(-5, 5, 0.37);
    for (int f = 0; f <= static_cast<int>(Function::kRelu); ++f) {
      const std::vector<float> all = apply(simd, static_cast<Function>(f), x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(bits_of(apply(simd, static_cast<Function>(f), {x[i]})[0]), bits_of(all[i]));
      }
    }
  }
}

template <typename T>
void expect_exact_copies() {
  for (const cpu::Simd simd : available_simd()) {
    SCOPED_TRACE(cpu::simd_name(simd));
    for (std::size_t n : {1u, 3u, 4u, 7u, 8u, 15u, 16u, 17u, 31u, 65536u}) {
      std::vector<T> x(n), narrow(n);
      std::vector<float> wide(n);
      for (std::size_t i = 0; i < n; ++i) {
        if constexpr (sizeof(T) == 4) {
          x[i] = static_cast<float>(i) - 5.25f;
        } else {
          x[i].bits = static_cast<std::uint16_t>(n < 100 ? i * 3000 : i);  // Every half there is.
        }
      }
      cpu::copy<T>(simd, x, wide, narrow);
      for (std::size_t i = 0; i < n; ++i) {
        const float exact = cpu::to_f32(x[i]);
        ASSERT_EQ(bits_of(wide[i]), bits_of(exact)) << i;
        const T rounded = cpu::from_f32<T>(exact);
        ASSERT_EQ(std::memcmp(&narrow[i], &rounded, sizeof(T)), 0) << i;
      }
    }
  }
}

TEST(Math, LoadsAndStoresAreExact) {
  expect_exact_copies<float>();
  expect_exact_copies<cpu::BF16>();
  expect_exact_copies<cpu::F16>();
}

TEST(Math, StoresRoundToNearestEven) {
  std::vector<float> x(1 << 16);
  std::vector<cpu::BF16> bf16(x.size());
  std::vector<cpu::F16> f16(x.size());
  for (const cpu::Simd simd : available_simd()) {
    SCOPED_TRACE(cpu::simd_name(simd));
    for (std::uint32_t round = 0; round < 16; ++round) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i) * 65521u + round * 4093u);
      }
      cpu::narrow(simd, x, bf16);
      cpu::narrow(simd, x, f16);
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(bf16[i].bits, bf16_from_f32(x[i])) << x[i];
        ASSERT_EQ(f16[i].bits, f16_from_f32(x[i])) << x[i];
      }
    }
  }
}

}  // namespace
}  // namespace volta::test
#endif
