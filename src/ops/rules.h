// What is known of every op without running it: the shapes it takes and gives (infer), its
// gradient, and its traits, which planner, passes and profilers ask: the float types it takes
// (types), what it does to memory (effects) and what it costs. Rules are written against
// GraphBuilder, which graph implements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/fields.h"
#include "ops/op.h"
#include "tensor/spec.h"

namespace [[gnu::visibility("default")]] volta {

/// A value of a graph: an index that only its graph can interpret.
struct ValueId {
  std::int32_t index = -1;
  bool valid() const { return index >= 0; }
  bool operator==(const ValueId&) const = default;
};

/// The part of a graph that gradient rules need: append an op, ask for a value's spec.
class GraphBuilder {
 public:
  virtual ~GraphBuilder() = default;
  /// Appends a node and returns its outputs, after infer has accepted the inputs.
  virtual Result<std::vector<ValueId>> add(const Op& op, std::span<const ValueId> inputs) = 0;
  /// By value: adding nodes moves what a reference would point to.
  virtual TensorSpec spec(ValueId value) const = 0;
  /// A f32 constant of `shape` filled with `value`.
  virtual Result<ValueId> filled(const Shape& shape, float value) = 0;

  /// add() for ops with one output, or where only the first one matters.
  Result<ValueId> add_one(const Op& op, std::initializer_list<ValueId> inputs);
};

/// The only validator of an op's shapes, types and attributes: the specs of the outputs, or
/// kInvalidArgument with a message that carries the op, the shapes and the types.
Result<std::vector<TensorSpec>> infer(const Op& op, std::span<const TensorSpec> inputs);

/// Whether the op can read input `input` in `encoding` (other than plain); infer refuses the rest.
bool accepts_encoding(const Op& op, std::size_t input, const Encoding& encoding);

/// What a gradient rule sees of the node it differentiates.
struct GradientContext {
  GraphBuilder& graph;
  std::span<const ValueId> inputs;
  std::span<const ValueId> outputs;
  /// One an output; invalid where the loss does not depend on it.
  std::span<const ValueId> output_grads;
  /// One an input: whether its gradient is wanted. Rules should not build what nobody wants.
  std::span<const bool> wanted;
  /// One an input: the type in which its gradient is kept; none: f32 for all. Rules whose ops name
  /// their output type give that one; what else a rule gives is converted for it.
  std::span<const DType> types = {};

  DType type(std::size_t input) const { return types.empty() ? DType::kF32 : types[input]; }
};
/// One an input; invalid where there is none (index inputs, or not wanted).
using Gradients = std::vector<ValueId>;

/// Appends the nodes that compute the gradients of one node's inputs. An op without a gradient is
/// an error that names it, never a silent zero.
Result<Gradients> gradient(const Op& op, const GradientContext& context);

/// Whether bit `i` of a mask is set; nothing past its 32 bits is.
constexpr bool in_mask(std::uint32_t mask, std::size_t i) {
  return i < 32 && ((mask >> i) & 1u) != 0;
}

/// The float types that an op takes and gives, whatever the shapes. Bit i of a mask is about input
/// i or output i. A float input in neither mask is f32.
struct OpTypes {
  /// Inputs that have one type, f32, bf16 or f16, together with the results below.
  std::uint32_t activations;
  /// Inputs that have any float type, each its own.
  std::uint32_t any;
  /// Outputs of the activations' type, or of the one that the op names (MatMul, Embedding).
  std::uint32_t results;
};
OpTypes types(const Op& op);

/// What an op does to memory, whatever the shapes. Bit i of each mask is about input i.
struct OpEffects {
  /// The op writes the input in place.
  std::uint32_t writes;
  /// Output 0 may take the memory of the input if it is as large and nobody reads that input
  /// afterwards: every kernel reads element j of the input for the last time before it writes
  /// element j of the output, in row ops as part of its row (the op cases prove it).
  std::uint32_t overwrites;
};
OpEffects effects(const Op& op);
/// The inputs that the op writes, of those that it has.
std::uint32_t writes(const Op& op, std::size_t input_count);
/// Whether bit `input` of a mask is set; inputs past its 32 bits are never written.
constexpr bool writes_input(std::uint32_t written, std::size_t input) {
  return in_mask(written, input);
}
/// Whether output 0 may take the memory of this input; see OpEffects.
bool may_alias(const Op& op, std::size_t input);
/// Floating-point operations and the bytes that must move at least (inputs once, outputs once).
struct OpCost {
  std::int64_t flops;
  std::int64_t bytes;
};
OpCost cost(const Op& op, std::span<const TensorSpec> inputs, std::span<const TensorSpec> outputs);
/// The op with its attributes, for dumps and messages: "MatMul{transpose_b, bias, gelu}".
std::string to_string(const Op& op);

// One overload an op, each in src/ops/<op>.cc. None has a default: what is forgotten does not link.
// Callers use the functions on Op above.
namespace rules {
#define VOLTA_DECLARE_RULES(Name)                                                            \
  Result<std::vector<TensorSpec>> infer(const Name& op, std::span<const TensorSpec> inputs); \
  Result<Gradients> gradient(const Name& op, const GradientContext& context);                \
  OpTypes types(const Name& op);                                                             \
  OpEffects effects(const Name& op);                                                         \
  OpCost cost(const Name& op, std::span<const TensorSpec> inputs,                            \
              std::span<const TensorSpec> outputs);
VOLTA_OPS(VOLTA_DECLARE_RULES)
#undef VOLTA_DECLARE_RULES
}  // namespace rules

}  // namespace volta
