// Helpers that the traits of the ops share, mostly for estimating costs. Private to src/ops.
//
// Costs are estimates: a transcendental function counts as a fixed number of operations, and the
// length of a cache, which is known at run time only, counts as its capacity.
#pragma once

#include <span>

#include "ops/rules.h"
#include "tensor/spec.h"

namespace volta::rules {

inline constexpr double kCheap = 1;      ///< Operations per addition, multiplication, comparison.
inline constexpr double kNonlinear = 8;  ///< Operations per exp, tanh or erf, all included.

/// For an op whose float operands are all f32.
inline constexpr OpTypes kF32Only = {.activations = 0, .any = 0, .results = 0};
/// For "y like x": input 0 and output 0 have the same type.
inline constexpr OpTypes kLikeX = {.activations = 0b1, .any = 0, .results = 0b1};
/// Input 0 may have any float type; the results are f32 or integers, except those of Cast and
/// Encode.
inline constexpr OpTypes kAnyX = {.activations = 0, .any = 0b1, .results = 0};

/// For an op that writes no input and whose output never takes the memory of an input.
inline constexpr OpEffects kPure = {.writes = 0, .overwrites = 0};

inline double elements(const TensorSpec& spec) {
  return static_cast<double>(spec.shape.elements());
}
/// The bytes of all the tensors together, in their encodings.
double total_bytes(std::span<const TensorSpec> specs);
/// `each` operations per element of the first input or the first output, whichever has more
/// elements.
double pointwise_flops(double each, std::span<const TensorSpec> inputs,
                       std::span<const TensorSpec> outputs);
/// Counts every input once, every output once, and every input that is written in place once more.
double bytes_moved(const OpEffects& effects, std::span<const TensorSpec> inputs,
                   std::span<const TensorSpec> outputs);
/// Rounds to integers; a cost above 2^62 becomes 2^62.
OpCost estimate(double flops, double bytes);

/// The cost of an op that does `each` operations per element and moves every operand once.
template <typename AnyOp>
OpCost pointwise_cost(const AnyOp& op, double each, std::span<const TensorSpec> inputs,
                      std::span<const TensorSpec> outputs) {
  return estimate(pointwise_flops(each, inputs, outputs),
                  bytes_moved(effects(op), inputs, outputs));
}

/// The operations per element of Unary.
double unary_flops(UnaryKind kind);

}  // namespace volta::rules
