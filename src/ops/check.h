// What the rules of the ops share: checks whose refusals carry the op, its attributes and the
// specs of its inputs; refusals to differentiate. Private to src/ops.
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

/// One op and the specs it is offered. Every method returns success, or kInvalidArgument with
/// "Op{attributes} of (f32[2, 3], i32[4]): expected ...".
class Check {
 public:
  Check(const Op& op, Specs inputs) : op_(op), inputs_(inputs) {}

  /// The refusal itself, for what the methods below cannot say.
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
  /// An attribute that names the type of a float result.
  Status output_type(DType out) const;
  /// Input i is exactly `spec`.
  Status is(std::size_t i, std::string_view name, const TensorSpec& spec) const;
  /// An attribute that must be finite; one that must lie in [0, 1); one finite and at least 0.
  Status finite(float value, std::string_view name) const;
  Status fraction(float value, std::string_view name) const;
  Status not_negative(float value, std::string_view name) const;
  /// An attribute that must be one of the functions that kernels apply to the results of others.
  Status activation(UnaryKind kind) const;

 private:
  Op op_;
  Specs inputs_;
};

/// The type that makes masks and draws repeatable: i64[2] = {seed, step}.
inline constexpr TensorSpec kRngSpec = {DType::kI64, Shape(2)};

/// `shape` without its last axis.
Shape drop_last(const Shape& shape);
/// Whether `suffix` equals the last axes of `shape`.
bool is_suffix(const Shape& suffix, const Shape& shape);

/// No gradient wanted or possible: one invalid value an input.
inline Gradients no_gradients(const GradientContext& context) {
  return Gradients(context.inputs.size());
}
/// The error for an op that has no gradient; `why` completes "X has no gradient: ...".
std::unexpected<Error> not_differentiable(const Op& op, std::string_view why);
/// The same for one of its outputs, such as the statistics that a backward op reads.
std::unexpected<Error> output_not_differentiable(const Op& op, std::string_view output);

/// `value` as a shape of as many elements; itself when it has that shape already.
Result<ValueId> reshaped(GraphBuilder& graph, ValueId value, Shape shape);

}  // namespace volta::rules
