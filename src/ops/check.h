// Helpers that the rules of the ops share: checks whose error messages contain the op, its
// attributes and the specs of its inputs, and the errors for ops without a gradient. Private to
// src/ops.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/op.h"
#include "ops/rules.h"
#include "tensor/spec.h"

namespace volta::rules {

using Specs = std::span<const TensorSpec>;
using SpecList = std::vector<TensorSpec>;

/// Checks one op against the specs of its inputs. Every method returns success, or kInvalidArgument
/// with "Op{attributes} of (f32[2, 3], i32[4]): expected ...".
class Check {
 public:
  Check(const Op& op, Specs inputs) : op_(op), inputs_(inputs) {}

  /// The error itself, for conditions that no method below covers.
  std::unexpected<Error> reject(std::string_view expected) const;
  Status that(bool holds, std::string_view expected) const;
  /// Exactly as many inputs as `names` ("a, b, bias") lists.
  Status count(std::size_t wanted, std::string_view names) const;
  /// Input i has type `dtype`.
  Status type(std::size_t i, std::string_view name, DType dtype) const;
  /// Input i is f32, bf16 or f16.
  Status floating(std::size_t i, std::string_view name) const;
  /// Input i is f32, bf16 or f16 with at least one axis, so that it has rows.
  Status float_rows(std::size_t i, std::string_view name) const;
  /// The attribute `out`, the type of a float result, is f32, bf16 or f16.
  Status output_type(DType out) const;
  /// Input i is exactly `spec`.
  Status is(std::size_t i, std::string_view name, const TensorSpec& spec) const;
  /// The attribute is finite; lies in [0, 1); is finite and at least 0.
  Status finite(float value, std::string_view name) const;
  Status fraction(float value, std::string_view name) const;
  Status not_negative(float value, std::string_view name) const;
  /// The attribute is an activation; see is_activation.
  Status activation(UnaryKind kind) const;

 private:
  Op op_;
  Specs inputs_;
};

/// The spec of `rng`, from which masks and draws can be computed again: i64[2] = {seed, step}.
inline constexpr TensorSpec kRngSpec = {DType::kI64, Shape(2)};

/// `shape` without its last axis.
Shape drop_last(const Shape& shape);
/// Whether `suffix` equals the last axes of `shape`.
bool is_suffix(const Shape& suffix, const Shape& shape);

/// The result of a rule that gives no gradients: one invalid value per input.
inline Gradients no_gradients(const GradientContext& context) {
  return Gradients(context.inputs.size());
}
/// The error for an op that has no gradient; `why` completes "X has no gradient: ...".
std::unexpected<Error> not_differentiable(const Op& op, std::string_view why);
/// The error for an output without a gradient, such as the statistics that a backward op reads.
std::unexpected<Error> output_not_differentiable(const Op& op, std::string_view output);

/// `value` reshaped to `shape`, which has the same number of elements; `value` itself if it already
/// has that shape.
Result<ValueId> reshaped(GraphBuilder& graph, ValueId value, Shape shape);

}  // namespace volta::rules
