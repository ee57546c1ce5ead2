// The definition of every op in double, written from the comments of ops/op.h and from nothing
// else, with a bound for every result: how far f32 arithmetic of any order may lead away from it.
// It knows no kernel and no device.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/op.h"
#include "tensor/spec.h"

namespace volta::reference {

/// A tensor in double, which holds every f32, bf16, f16 and i32, and the i64 of tests, exactly.
struct Array {
  TensorSpec spec;
  std::vector<double> data;
  std::vector<double> error;  ///< The bound of each element; 0 where the result must be exact.

  explicit Array(const TensorSpec& its_spec = {})
      : spec(its_spec),
        data(static_cast<std::size_t>(its_spec.shape.elements())),
        error(data.size()) {}

  double& operator[](std::int64_t i) { return data[static_cast<std::size_t>(i)]; }
  double operator[](std::int64_t i) const { return data[static_cast<std::size_t>(i)]; }
  std::int64_t size() const { return static_cast<std::int64_t>(data.size()); }
  void set(std::int64_t i, double value, double bound) {
    data[static_cast<std::size_t>(i)] = value;
    error[static_cast<std::size_t>(i)] = bound;
  }
};

/// One call: `out` has the specs that infer gives, zeros everywhere.
struct Call {
  std::vector<Array>& in;  ///< What an op writes in place it writes here.
  std::vector<Array> out;
};

#define VOLTA_DECLARE_REFERENCE(Name) void compute(const Name& op, Call& call);
VOLTA_OPS(VOLTA_DECLARE_REFERENCE)
#undef VOLTA_DECLARE_REFERENCE

/// The outputs of any op. Fails the running test when infer refuses.
std::vector<Array> run(const Op& op, std::vector<Array>& inputs);

// ---- bounds ---------------------------------------------------------------------------------
// u is the unit roundoff of f32: fl(a op b) = (a op b)(1 + d), |d| <= u. Higham, "Accuracy and
// Stability of Numerical Algorithms", 2002: a sum of n terms taken in any order is off by at most
// gamma(n) times the sum of their sizes (ch. 3 and 4); gamma(n) also covers n roundings in a chain.

inline constexpr double kUnit = 0x1p-24;
inline double gamma(std::int64_t n) {
  const double nu = static_cast<double>(n) * kUnit;
  return nu / (1.0 - nu);
}

/// How far rounding a number of at most this size to `dtype` leads away from it: half a unit in the
/// last place, or half the distance of two subnormal numbers; nothing in f32, whose roundings are
/// part of every bound.
inline double rounding_bound(DType dtype, double size) {
  if (dtype == DType::kBF16) return 0x1p-8 * std::abs(size) + 0x1p-134;
  if (dtype == DType::kF16) return 0x1p-11 * std::abs(size) + 0x1p-25;
  return 0.0;
}

/// A number with its bound.
struct Bounded {
  double value = 0.0;
  double error = 0.0;
};

/// A sum of terms that may have bounds of their own.
class Sum {
 public:
  void add(double term, double error = 0.0) {
    value_ += term;
    size_ += std::abs(term);
    inherited_ += error;
    ++count_;
  }
  double value() const { return value_; }
  double size() const { return size_; }
  /// `extra` counts roundings that each term has already gone through (1 for a product).
  Bounded bounded(std::int64_t extra = 0) const {
    return {value_, inherited_ + gamma(count_ + extra) * (size_ + inherited_)};
  }

 private:
  double value_ = 0.0, size_ = 0.0, inherited_ = 0.0;
  std::int64_t count_ = 0;
};

/// kind(x) and kind'(x) for an exact x.
Bounded value(UnaryKind kind, double alpha, double x);
Bounded slope(UnaryKind kind, double alpha, double x);
/// activation(x) and its slope; kNone is the identity.
Bounded value(Activation activation, double x);
Bounded slope(Activation activation, double x);
/// No activation is steeper: max |gelu'| = 1.13, |silu'| = 1.10.
inline constexpr double kSteepest = 1.13;
/// The relative bound of e^x for an exact x: two units in the last place.
inline constexpr double kExp = 4 * kUnit;

/// The factor of an element under dropout: 0 or 1 / (1 - p). `rng` is {seed, step}.
double dropout_factor(const Array& rng, std::uint32_t stream, float p, std::int64_t element);

}  // namespace volta::reference
