// GlobalNorm, AdamW, Sgd: against the formulas in double over many steps, and what they do with
// gradients that are not finite.
#include <gtest/gtest.h>

#include <cmath>

#include "operand.h"

namespace volta::test {
namespace {

Operand scalar(float value) { return {Shape(), {value}}; }

TEST(GlobalNorm, EqualsTheNormOfAllGradients) {
  const std::vector<std::int64_t> sizes = {1, 7, 8191, 8192, 8193, 100'000, 0, 33};
  std::vector<Operand> gradients;
  double squares = 0.0;
  for (const std::int64_t n : sizes) {
    gradients.emplace_back(Shape(n), random_values(static_cast<std::size_t>(n), 1));
    for (const float g : gradients.back().values()) squares += static_cast<double>(g) * g;
  }
  Operand loss = scalar(1.0f);
  std::vector<Operand*> inputs = {&loss};
  for (Operand& gradient : gradients) inputs.push_back(&gradient);
  for_each_simd([&](const cpu::Context& context) {
    for (const float max_norm : {0.0f, 1.0f, 1e9f}) {
      Operand stats((Shape(3)));
      call(GlobalNorm{max_norm}, inputs, {&stats}, context);
      expect_close(stats[0], std::sqrt(squares), 1e-7);
      const double factor =
          max_norm > 0 ? std::min(1.0, max_norm / (std::sqrt(squares) + 1e-6)) : 1.0;
      expect_close(stats[1], factor, 1e-7);
      EXPECT_EQ(stats[2], 1.0f);
    }
  });
}

TEST(GlobalNorm, SeesWhatIsNotFinite) {
  for_each_simd([](const cpu::Context& context) {
    const auto finite = [&](float loss_value, float element, std::size_t place) {
      std::vector<float> values(40, 0.0f);
      values[place] = element;
      Operand loss(Shape(1), {loss_value}), gradient(Shape(40), values), stats((Shape(3)));
      call(GlobalNorm{1.0f}, {&loss, &gradient}, {&stats}, context);
      return stats[2];
    };
    for (const std::size_t place : {0, 31, 39}) {
      EXPECT_EQ(finite(1.0f, kNaN, place), 0.0f);
      EXPECT_EQ(finite(1.0f, kInfinity, place), 0.0f);
      EXPECT_EQ(finite(1.0f, -kInfinity, place), 0.0f);
      EXPECT_EQ(finite(1.0f, 3.4e38f, place), 1.0f);  // Its square does not overflow f64.
    }
    EXPECT_EQ(finite(kNaN, 1.0f, 0), 0.0f);
    EXPECT_EQ(finite(kInfinity, 1.0f, 0), 0.0f);
    Operand loss = scalar(0.0f), stats((Shape(3)));
    call(GlobalNorm{1.0f}, {&loss}, {&stats}, context);  // No gradients at all.
    EXPECT_EQ(stats.values(), (std::vector<float>{0.0f, 1.0f, 1.0f}));
  });
}

Operand schedule_of(double lr, double beta1, double beta2, int t) {
  return {Shape(3),
          {static_cast<float>(lr), static_cast<float>(1 - std::pow(beta1, t)),
           static_cast<float>(1 - std::pow(beta2, t))}};
}

TEST(AdamW, FollowsTheFormulaForManySteps) {
  constexpr double kLr = 1e-2, kBeta1 = 0.9f, kBeta2 = 0.99f, kEps = 1e-8f, kDecay = 0.1f;
  constexpr double kFactor = 0.5;
  const AdamW op{0.9f, 0.99f, 1e-8f, 0.1f};
  for (const std::int64_t n : {1, 5, 16, 37, 1000, 40'000}) {
    const auto size = static_cast<std::size_t>(n);
    const std::vector<float> start = random_values(size, 1);
    for_each_simd([&](const cpu::Context& context) {
      Operand param(Shape(n), start), m(Shape(n), std::vector<float>(size, 0.0f)), v = m;
      std::vector<double> p(start.begin(), start.end()), em(size), ev(size);
      Operand stats(Shape(3), {2.0f, static_cast<float>(kFactor), 1.0f});
      for (int t = 1; t <= 20; ++t) {
        Operand grad(Shape(n), random_values(size, 100 + static_cast<std::uint32_t>(t)));
        Operand schedule = schedule_of(kLr, kBeta1, kBeta2, t);
        call(op, {&param, &grad, &m, &v, &schedule, &stats}, {}, context);
        for (std::size_t i = 0; i < size; ++i) {
          const double g = kFactor * grad[i];
          p[i] *= 1 - kLr * kDecay;
          em[i] += (g - em[i]) * (1 - kBeta1);
          ev[i] = kBeta2 * ev[i] + (1 - kBeta2) * g * g;
          p[i] -= kLr / (1 - std::pow(kBeta1, t)) * em[i] /
                  (std::sqrt(ev[i]) / std::sqrt(1 - std::pow(kBeta2, t)) + kEps);
        }
      }
      for (std::size_t i = 0; i < size; ++i) {
        expect_close(m[i], em[i], 1e-5, 1e-6);
        expect_close(v[i], ev[i], 1e-5);
        expect_close(param[i], p[i], 1e-6, 1e-6);
      }
    });
  }
}

TEST(AdamW, TouchesNothingAfterAStepThatWasNotFinite) {
  for_each_simd([](const cpu::Context& context) {
    Operand param(Shape(20), random_values(20, 1)), m(Shape(20), random_values(20, 2));
    Operand v(Shape(20), std::vector<float>(20, 1.0f));
    Operand grad(Shape(20), std::vector<float>(20, kNaN));
    Operand schedule = schedule_of(0.1, 0.9, 0.99, 1), stats(Shape(3), {kNaN, kNaN, 0.0f});
    const Operand p0 = param, m0 = m, v0 = v;
    call(AdamW{}, {&param, &grad, &m, &v, &schedule, &stats}, {}, context);
    call(Sgd{}, {&param, &grad, &schedule, &stats}, {}, context);
    call(Sgd{0.9f}, {&param, &grad, &m, &schedule, &stats}, {}, context);
    EXPECT_EQ(param.bytes(), p0.bytes());
    EXPECT_EQ(m.bytes(), m0.bytes());
    EXPECT_EQ(v.bytes(), v0.bytes());
  });
}

TEST(Sgd, FollowsTheFormulaWithAndWithoutMomentum) {
  for (const float momentum : {0.0f, 0.9f}) {
    for (const std::int64_t n : {1, 19, 40'000}) {
      const auto size = static_cast<std::size_t>(n);
      const std::vector<float> start = random_values(size, 1);
      for_each_simd([&](const cpu::Context& context) {
        Operand param(Shape(n), start), velocity(Shape(n), std::vector<float>(size, 0.0f));
        std::vector<double> p(start.begin(), start.end()), ev(size);
        Operand schedule(Shape(3), {0.05f, 1.0f, 1.0f}), stats(Shape(3), {1.0f, 0.25f, 1.0f});
        for (std::uint32_t t = 0; t < 10; ++t) {
          Operand grad(Shape(n), random_values(size, 100 + t));
          std::vector<Operand*> inputs = {&param, &grad, &velocity, &schedule, &stats};
          if (momentum == 0.0f) inputs.erase(inputs.begin() + 2);
          call(Sgd{momentum, 0.01f}, inputs, {}, context);
          for (std::size_t i = 0; i < size; ++i) {
            ev[i] = momentum * ev[i] + 0.25 * grad[i] + static_cast<double>(0.01f) * p[i];
            p[i] -= static_cast<double>(0.05f) * ev[i];
          }
        }
        for (std::size_t i = 0; i < size; ++i) expect_close(param[i], p[i], 1e-6, 2e-6);
      });
    }
  }
}

}  // namespace
}  // namespace volta::test
