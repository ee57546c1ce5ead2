// The pointwise functions with their bounds, dropout, and the dispatch over all ops.
//
// Bounds of functions. exp is taken to be good to 2 units in the last place (4u) and tanh to 3
// (6u), as math libraries for f32 are. The normal distribution's Phi is good to a relative
// 40u + 3 x^2 u in its tail (the exponent -x^2/2 is rounded); the other side is 1 - tail. What
// follows from these is composed below with first-order error propagation.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <variant>

#include "base/rng.h"
#include "ops/op_case.h"
#include "ops/reference/reference.h"
#include "ops/rules.h"

namespace volta::reference {

namespace {

constexpr double kU = kUnit;
constexpr double kTanh = 6 * kU;

double phi(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }

Bounded normal_cdf(double x) {
  const double tail = std::erfc(std::abs(x) / std::numbers::sqrt2) / 2;
  const double tail_error = tail * (40 + 3 * x * x) * kU;
  if (x < 0) return {tail, tail_error};
  return {1 - tail, tail_error + kU};
}

// 1 / (1 + e^-x) for an x that is off by `relative` of itself: ds = s (1 - s) dx.
Bounded sigmoid(double x, double relative) {
  const double e = std::exp(-std::abs(x));
  const double s = x < 0 ? e / (1 + e) : 1 / (1 + e);
  const double complement = x < 0 ? 1 / (1 + e) : e / (1 + e);
  return {s, s * (complement * (kExp + relative * std::abs(x)) + 3 * kU)};
}

// The argument of GELU's tanh form, as 2 sqrt(2/pi) (x + 0.044715 x^3), and its slope.
double gelu_argument(double x) {
  return std::sqrt(8 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}
double gelu_argument_slope(double x) {
  return std::sqrt(8 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
}

// x s, where x is exact.
Bounded gated(double x, Bounded s) {
  const double y = x * s.value;
  return {y, std::abs(x) * s.error + kU * std::abs(y)};
}

// The slope s + x s (1 - s) du of x s(u(x)).
Bounded gated_slope(double x, Bounded s, double du) {
  const double rest = 1 - s.value;
  const double term = x * s.value * rest * du;
  const double term_error =
      std::abs(x * du) * (s.error * std::abs(rest) + s.value * (s.error + kU)) +
      6 * kU * std::abs(term);
  const double y = s.value + term;
  return {y, s.error + term_error + kU * std::abs(y)};
}

}  // namespace

Bounded value(UnaryKind kind, double alpha, double x) {
  switch (kind) {
    case UnaryKind::kNone:
      return {x, 0.0};
    case UnaryKind::kScale:
      return {alpha * x, kU * std::abs(alpha * x)};
    case UnaryKind::kExp:
      return {std::exp(x), kExp * std::exp(x)};
    case UnaryKind::kLog:
      return {std::log(x), 4 * kU * std::abs(std::log(x))};
    case UnaryKind::kSqrt:
      return {std::sqrt(x), kU * std::sqrt(x)};
    case UnaryKind::kSquare:
      return {x * x, kU * x * x};
    case UnaryKind::kReciprocal:
      return {1 / x, kU / std::abs(x)};
    case UnaryKind::kTanh:
      return {std::tanh(x), kTanh * std::abs(std::tanh(x))};
    case UnaryKind::kRelu:
      return {x > 0 || std::isnan(x) ? x : 0.0, 0.0};
    case UnaryKind::kGelu:
      return gated(x, normal_cdf(x));
    case UnaryKind::kGeluTanh:
      return gated(x, sigmoid(gelu_argument(x), 4 * kU));
    case UnaryKind::kSilu:
      return gated(x, sigmoid(x, 0));
  }
  return {};
}

Bounded slope(UnaryKind kind, double alpha, double x) {
  switch (kind) {
    case UnaryKind::kNone:
      return {1.0, 0.0};
    case UnaryKind::kScale:
      return {alpha, 0.0};
    case UnaryKind::kExp:
      return {std::exp(x), kExp * std::exp(x)};
    case UnaryKind::kLog:
      return {1 / x, kU / std::abs(x)};
    case UnaryKind::kSqrt:
      return {0.5 / std::sqrt(x), 3 * kU * 0.5 / std::sqrt(x)};
    case UnaryKind::kSquare:
      return {2 * x, kU * std::abs(2 * x)};
    case UnaryKind::kReciprocal:
      return {-1 / (x * x), 3 * kU / (x * x)};
    case UnaryKind::kTanh: {
      const double t = std::tanh(x);
      return {1 - t * t, 2 * t * t * kTanh + 2 * kU};
    }
    case UnaryKind::kRelu:
      return {x <= 0 ? 0.0 : 1.0, 0.0};  // NaN lets the gradient through, as in PyTorch.
    case UnaryKind::kGelu: {
      const Bounded cdf = normal_cdf(x);
      const double term = x * phi(x), y = cdf.value + term;
      const double relative = kExp + (2 + x * x) * kU;
      return {y, cdf.error + std::abs(term) * relative + kU * std::abs(y)};
    }
    case UnaryKind::kGeluTanh:
      return gated_slope(x, sigmoid(gelu_argument(x), 4 * kU), gelu_argument_slope(x));
    case UnaryKind::kSilu:
      return gated_slope(x, sigmoid(x, 0), 1.0);
  }
  return {};
}

Bounded value(Activation activation, double x) { return value(activation, 1.0, x); }

Bounded slope(Activation activation, double x) { return slope(activation, 1.0, x); }

double dropout_factor(const Array& rng, std::uint32_t stream, float p, std::int64_t element) {
  const float uniform = uniform_float(
      random_bits_at(static_cast<std::uint64_t>(static_cast<std::int64_t>(rng[0])), stream,
                     static_cast<std::uint32_t>(static_cast<std::int64_t>(rng[1])),
                     static_cast<std::uint64_t>(element)));
  return uniform >= p ? 1.0 / (1.0 - static_cast<double>(p)) : 0.0;
}

namespace {

// The bound of what is rounded to 16 bits. What the type holds exactly, such as a copy, stays
// exact.
void add_rounding(Array& out) {
  const DType dtype = out.spec.dtype;
  if (!is_float(dtype) || dtype == DType::kF32) return;
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    const double value = out.data[i];
    const bool held = out.error[i] == 0.0 && op_test::round_to(dtype, value) == value;
    if (!held) out.error[i] += rounding_bound(dtype, std::abs(value) + out.error[i]);
  }
}

}  // namespace

std::vector<Array> run(const Op& op, std::vector<Array>& inputs) {
  std::vector<TensorSpec> specs;
  for (const Array& input : inputs) specs.push_back(input.spec);
  Call call = {inputs, {}};
  const auto outputs = infer(op, specs);
  if (!outputs) {
    ADD_FAILURE() << outputs.error().message();
    return {};
  }
  for (const TensorSpec& spec : *outputs) call.out.emplace_back(spec);
  std::visit([&](const auto& any) { compute(any, call); }, op);
  // Conversions give what their type holds; every other op rounds once more where it stores.
  const bool converts = std::holds_alternative<Cast>(op) || std::holds_alternative<Encode>(op);
  for (Array& out : call.out) {
    if (!converts) add_rounding(out);
  }
  return std::move(call.out);
}

}  // namespace volta::reference
