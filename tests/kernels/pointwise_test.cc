// Unary, UnaryGrad, Binary, GatedUnit, GatedUnitGrad, Accumulate, Fill: against the definitions in
// double at every remainder, in place, and at the edges of f32.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>

#include "operand.h"

namespace volta::test {
namespace {

double phi(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double gelu_tanh_u(double x) { return 2.0 * std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x); }

struct Function {
  UnaryKind kind;
  bool positive_only;
  std::function<double(double)> value, slope;
};

std::vector<Function> functions() {
  const auto square = [](double x) { return x * x; };
  return {
      {UnaryKind::kScale, false, [](double x) { return 1.5 * x; }, [](double) { return 1.5; }},
      {UnaryKind::kExp, false, [](double x) { return std::exp(x); },
       [](double x) { return std::exp(x); }},
      {UnaryKind::kLog, true, [](double x) { return std::log(x); }, [](double x) { return 1 / x; }},
      {UnaryKind::kSqrt, true, [](double x) { return std::sqrt(x); },
       [](double x) { return 0.5 / std::sqrt(x); }},
      {UnaryKind::kSquare, false, square, [](double x) { return 2 * x; }},
      {UnaryKind::kReciprocal, true, [](double x) { return 1 / x; },
       [](double x) { return -1 / (x * x); }},
      {UnaryKind::kTanh, false, [](double x) { return std::tanh(x); },
       [=](double x) { return 1 / square(std::cosh(x)); }},
      {UnaryKind::kRelu, false, [](double x) { return x > 0 ? x : 0; },
       [](double x) { return x > 0 ? 1 : 0; }},
      {UnaryKind::kGelu, false, [](double x) { return x * phi(x); },
       [](double x) { return phi(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }},
      {UnaryKind::kGeluTanh, false, [](double x) { return x * sigmoid(gelu_tanh_u(x)); },
       [](double x) {
         const double s = sigmoid(gelu_tanh_u(x));
         return s + x * s * (1 - s) * 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
       }},
      {UnaryKind::kSilu, false, [](double x) { return x * sigmoid(x); },
       [](double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }},
  };
}

// Values spread over what the functions do: the middle, and both tails.
std::vector<float> arguments(std::int64_t n, bool positive_only) {
  std::vector<float> x = random_values(static_cast<std::size_t>(n), 1, 3.0f);
  if (positive_only) {
    for (float& v : x) v = std::abs(v) + 0.01f;
  }
  return x;
}

// A few ulp of the result, and what exp makes of the rounding of its argument: x^2 / 2 in GELU,
// sqrt(8 / pi) (x + 0.044715 x^3) in its approximation, x elsewhere.
double relative_error(double x) {
  const double size = std::abs(x);
  return 1e-6 + 0x1p-23 * (2 * size + size * size / 2 + 0.08 * size * size * size);
}
// Slopes cancel besides: 1 - s, Phi(x) + x phi(x).
constexpr double kSlopeError = 1e-6;

TEST(Unary, EqualsTheDefinitionAtEveryRemainder) {
  for (const Function& f : functions()) {
    SCOPED_TRACE(static_cast<int>(f.kind));
    for (const std::int64_t n : interesting_sizes()) {
      Operand x(Shape(n), arguments(n, f.positive_only));
      for_each_simd([&](const cpu::Context& context) {
        Operand y((Shape(n)));
        call(Unary{f.kind, 1.5f}, {&x}, {&y}, context);
        for (std::size_t i = 0; i < y.size(); ++i) {
          expect_close(y[i], f.value(x[i]), relative_error(x[i]), 1e-30);
        }
      });
    }
  }
}

TEST(UnaryGrad, EqualsTheDefinitionAtEveryRemainder) {
  for (const Function& f : functions()) {
    SCOPED_TRACE(static_cast<int>(f.kind));
    for (const std::int64_t n : interesting_sizes()) {
      Operand x(Shape(n), arguments(n, f.positive_only));
      Operand dy(Shape(n), random_values(static_cast<std::size_t>(n), 2));
      for_each_simd([&](const cpu::Context& context) {
        Operand dx((Shape(n)));
        call(UnaryGrad{f.kind, 1.5f}, {&x, &dy}, {&dx}, context);
        for (std::size_t i = 0; i < dx.size(); ++i) {
          const double upstream = dy[i];
          expect_close(dx[i], upstream * f.slope(x[i]), relative_error(x[i]),
                       kSlopeError * std::abs(upstream));
        }
      });
    }
  }
}

TEST(UnaryGrad, SlopesOfHugeValuesAreTheirLimits) {
  const std::vector<float> huge = {17.0f, -17.0f, 2e19f, -2e19f, 3e38f, -3e38f};
  for_each_simd([&](const cpu::Context& context) {
    for (const UnaryKind kind : {UnaryKind::kGelu, UnaryKind::kGeluTanh, UnaryKind::kSilu}) {
      SCOPED_TRACE(static_cast<int>(kind));
      Operand x(Shape(6), huge), dy(Shape(6), std::vector<float>(6, 1.0f)), dx((Shape(6)));
      call(UnaryGrad{kind}, {&x, &dy}, {&dx}, context);
      for (std::size_t i = 0; i < huge.size(); ++i) {
        EXPECT_NEAR(dx[i], huge[i] > 0 ? 1.0f : 0.0f, 1e-5f) << huge[i];
      }
    }
  });
}

TEST(Unary, KeepsNaNAndInfinities) {
  Operand x(Shape(4), {kNaN, kInfinity, -kInfinity, 0.0f});
  const std::array<std::pair<UnaryKind, std::array<float, 4>>, 7> cases = {{
      {UnaryKind::kExp, {kNaN, kInfinity, 0.0f, 1.0f}},
      {UnaryKind::kLog, {kNaN, kInfinity, kNaN, -kInfinity}},
      {UnaryKind::kSqrt, {kNaN, kInfinity, kNaN, 0.0f}},
      {UnaryKind::kTanh, {kNaN, 1.0f, -1.0f, 0.0f}},
      {UnaryKind::kRelu, {kNaN, kInfinity, 0.0f, 0.0f}},
      {UnaryKind::kSquare, {kNaN, kInfinity, kInfinity, 0.0f}},
      {UnaryKind::kReciprocal, {kNaN, 0.0f, 0.0f, kInfinity}},
  }};
  for_each_simd([&](const cpu::Context& context) {
    for (const auto& [kind, expected] : cases) {
      SCOPED_TRACE(static_cast<int>(kind));
      Operand y((Shape(4)));
      call(Unary{kind}, {&x}, {&y}, context);
      for (std::size_t i = 0; i < 4; ++i) expect_close(y[i], expected[i], 0);
    }
    for (const UnaryKind kind : {UnaryKind::kGelu, UnaryKind::kGeluTanh, UnaryKind::kSilu}) {
      Operand y((Shape(4))), dy(Shape(4), {1, 1, 1, 1}), dx((Shape(4)));
      call(Unary{kind}, {&x}, {&y}, context);
      EXPECT_TRUE(std::isnan(y[0]));
      EXPECT_EQ(y[1], kInfinity);
      EXPECT_EQ(y[3], 0.0f);
      call(UnaryGrad{kind}, {&x, &dy}, {&dx}, context);
      EXPECT_TRUE(std::isnan(dx[0]));
      EXPECT_EQ(dx[3], 0.5f);
    }
  });
}

TEST(Unary, MayWriteOverItsInputs) {
  const std::vector<float> values = arguments(1003, true), upstream = random_values(1003, 2);
  for_each_simd([&](const cpu::Context& context) {
    for (const Function& f : functions()) {
      Operand x(Shape(1003), values), dy(Shape(1003), upstream), y((Shape(1003)));
      call(Unary{f.kind}, {&x}, {&y}, context);
      Operand in_place = x;
      call(Unary{f.kind}, {&in_place}, {&in_place}, context);
      EXPECT_EQ(in_place.bytes(), y.bytes());

      call(UnaryGrad{f.kind}, {&x, &dy}, {&y}, context);
      Operand over_x = x, over_dy = dy;
      call(UnaryGrad{f.kind}, {&over_x, &dy}, {&over_x}, context);
      call(UnaryGrad{f.kind}, {&x, &over_dy}, {&over_dy}, context);
      EXPECT_EQ(over_x.bytes(), y.bytes());
      EXPECT_EQ(over_dy.bytes(), y.bytes());
    }
  });
}

float combine(BinaryKind kind, float x, float y) {
  switch (kind) {
    case BinaryKind::kAdd:
      return x + y;
    case BinaryKind::kSub:
      return x - y;
    case BinaryKind::kMul:
      return x * y;
    case BinaryKind::kDiv:
      return x / y;
  }
  return kNaN;
}

constexpr std::array kBinaryKinds = {BinaryKind::kAdd, BinaryKind::kSub, BinaryKind::kMul,
                                     BinaryKind::kDiv};

TEST(Binary, RepeatsYAlongTheLeadingAxes) {
  struct Case {
    Shape x, y;
  };
  const std::vector<Case> cases = {{Shape(7, 5, 3), Shape(7, 5, 3)}, {Shape(7, 5, 3), Shape(5, 3)},
                                   {Shape(7, 5, 3), Shape(3)},       {Shape(7, 5, 3), Shape(1)},
                                   {Shape(7, 5, 3), Shape()},        {Shape(300, 200), Shape(200)},
                                   {Shape(40'000), Shape(40'000)},   {Shape(0, 3), Shape(3)},
                                   {Shape(3, 0), Shape(0)}};
  for (const Case& c : cases) {
    Operand x(c.x, random_values(static_cast<std::size_t>(c.x.elements()), 3));
    Operand y(c.y, random_values(static_cast<std::size_t>(c.y.elements()), 4));
    for_each_simd([&](const cpu::Context& context) {
      for (const BinaryKind kind : kBinaryKinds) {
        Operand z(c.x), in_place = x;
        call(Binary{kind}, {&x, &y}, {&z}, context);
        for (std::size_t i = 0; i < z.size(); ++i) {
          ASSERT_EQ(z[i], combine(kind, x[i], y[i % y.size()])) << i;
        }
        call(Binary{kind}, {&in_place, &y}, {&in_place}, context);
        EXPECT_EQ(in_place.bytes(), z.bytes());
      }
    });
  }
}

TEST(GatedUnit, EqualsTheProductAndMayWriteOverItsInputs) {
  const std::vector<Function> all = functions();
  const auto find = [&](UnaryKind kind) {
    return *std::find_if(all.begin(), all.end(), [&](const Function& f) { return f.kind == kind; });
  };
  Function identity = find(UnaryKind::kScale);
  identity.value = [](double x) { return x; };
  identity.slope = [](double) { return 1.0; };
  const std::vector<std::pair<Activation, Function>> cases = {
      {Activation::kNone, identity},
      {Activation::kRelu, find(UnaryKind::kRelu)},
      {Activation::kGelu, find(UnaryKind::kGelu)},
      {Activation::kGeluTanh, find(UnaryKind::kGeluTanh)},
      {Activation::kSilu, find(UnaryKind::kSilu)}};
  for (const std::int64_t n : {1, 7, 33, 20'000}) {
    const auto size = static_cast<std::size_t>(n);
    Operand gate(Shape(n), random_values(size, 5, 3.0f)), up(Shape(n), random_values(size, 6));
    Operand dy(Shape(n), random_values(size, 7));
    for_each_simd([&](const cpu::Context& context) {
      for (const auto& [activation, f] : cases) {
        Operand y((Shape(n))), dgate((Shape(n))), dup((Shape(n)));
        call(GatedUnit{activation}, {&gate, &up}, {&y}, context);
        call(GatedUnitGrad{activation}, {&gate, &up, &dy}, {&dgate, &dup}, context);
        for (std::size_t i = 0; i < size; ++i) {
          const double g = gate[i], u = up[i], d = dy[i];
          expect_close(y[i], f.value(g) * u, relative_error(g), 1e-30);
          expect_close(dgate[i], d * u * f.slope(g), relative_error(g),
                       kSlopeError * std::abs(d * u));
          expect_close(dup[i], d * f.value(g), relative_error(g), 1e-30);
        }
        for (const int lent : {0, 1, 2}) {
          Operand g = gate, u = up, d = dy, other((Shape(n)));
          Operand* first = lent == 0 ? &g : lent == 1 ? &u : &d;
          call(GatedUnitGrad{activation}, {&g, &u, &d}, {first, &other}, context);
          EXPECT_EQ(first->bytes(), dgate.bytes());
          EXPECT_EQ(other.bytes(), dup.bytes());
          if (lent == 2) continue;
          g = gate, u = up;
          call(GatedUnit{activation}, {&g, &u}, {first}, context);
          EXPECT_EQ(first->bytes(), y.bytes());
        }
      }
    });
  }
}

TEST(Accumulate, AddsInPlace) {
  for (const std::int64_t n : interesting_sizes()) {
    const auto size = static_cast<std::size_t>(n);
    const Operand before(Shape(n), random_values(size, 8));
    Operand x(Shape(n), random_values(size, 9));
    for_each_simd([&](const cpu::Context& context) {
      Operand target = before;
      call(Accumulate{0.5f}, {&target, &x}, {}, context);
      for (std::size_t i = 0; i < size; ++i) EXPECT_EQ(target[i], before[i] + 0.5f * x[i]);
    });
  }
}

TEST(Fill, WritesOneValue) {
  for_each_simd([&](const cpu::Context& context) {
    Operand target(Shape(40'001));
    call(Fill{-2.5f}, {&target}, {}, context);
    EXPECT_EQ(target.values(), std::vector<float>(40'001, -2.5f));
  });
}

}  // namespace
}  // namespace volta::test
