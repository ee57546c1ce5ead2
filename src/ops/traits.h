// What the traits of the ops share: estimates of their cost. Private to src/ops.
//
// Estimates by definition: a transcendental counts as a handful of operations, and the length of a
// cache, which only the run knows, as its capacity.
#pragma once

#include <span>

#include "ops/rules.h"
#include "tensor/spec.h"

namespace volta::rules {

inline constexpr double kCheap = 1;      ///< Operations of an add, a multiply, a comparison.
inline constexpr double kNonlinear = 8;  ///< Of exp, tanh, erf and what surrounds them.

/// An op of which every float operand is f32.
inline constexpr OpTypes kF32Only = {.activations = 0, .any = 0, .results = 0};
/// y like x: input 0 and output 0 have one type.
inline constexpr OpTypes kLikeX = {.activations = 0b1, .any = 0, .results = 0b1};
/// Input 0 may have any float type; what comes of it is f32, or no float.
inline constexpr OpTypes kAnyX = {.activations = 0, .any = 0b1, .results = 0};

/// An op that writes no input and whose results never take the memory of one.
inline constexpr OpEffects kPure = {.writes = 0, .overwrites = 0};

inline double elements(const TensorSpec& spec) {
  return static_cast<double>(spec.shape.elements());
}
/// The bytes of all of them, as they are encoded.
double total_bytes(std::span<const TensorSpec> specs);
/// `each` operations an element of the larger of the first input and the first output.
double pointwise_flops(double each, std::span<const TensorSpec> inputs,
                       std::span<const TensorSpec> outputs);
/// Every input once, every output once, and once more what is written in place.
double bytes_moved(const OpEffects& effects, std::span<const TensorSpec> inputs,
                   std::span<const TensorSpec> outputs);
/// Rounded; a cost that does not fit is 2^62.
OpCost estimate(double flops, double bytes);

/// The cost of an op that does `each` operations an element and moves every operand once.
template <typename AnyOp>
OpCost pointwise_cost(const AnyOp& op, double each, std::span<const TensorSpec> inputs,
                      std::span<const TensorSpec> outputs) {
  return estimate(pointwise_flops(each, inputs, outputs),
                  bytes_moved(effects(op), inputs, outputs));
}

/// Operations of one element of Unary.
double unary_flops(UnaryKind kind);

}  // namespace volta::rules
