// The rules of every op, which are known without running it: the shapes of its inputs and outputs
// (infer), its gradient, and its traits. The planner, the passes and the profilers use the traits:
// the float types of the operands (types), the effects on memory (effects) and the cost (cost).
// Gradient rules are written against GraphBuilder, which the graph library implements.
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

/// A value of a graph: an index that is valid in that graph only.
struct ValueId {
  std::int32_t index = -1;
  bool valid() const { return index >= 0; }
  bool operator==(const ValueId&) const = default;
};

/// The part of a graph's interface that gradient rules need: they append ops and read the specs of
/// values.
class GraphBuilder {
 public:
  virtual ~GraphBuilder() = default;
  /// Appends a node and returns its outputs, after infer has accepted the inputs.
  virtual Result<std::vector<ValueId>> add(const Op& op, std::span<const ValueId> inputs) = 0;
  /// Returned by value, because adding a node can move the specs in memory.
  virtual TensorSpec spec(ValueId value) const = 0;
  /// An f32 value of `shape` whose elements are all `value`.
  virtual Result<ValueId> filled(const Shape& shape, float value) = 0;

  /// add() for ops with one output, or when only the first output is needed.
  Result<ValueId> add_one(const Op& op, std::initializer_list<ValueId> inputs);
};

/// Returns the specs of the outputs. This is the only validator of an op's shapes, types and
/// attributes: it returns kInvalidArgument if they are wrong, with a message that contains the op,
/// the shapes and the types.
Result<std::vector<TensorSpec>> infer(const Op& op, std::span<const TensorSpec> inputs);

/// Whether the op can read input `input` in `encoding`, which is not plain. infer rejects all other
/// encoded inputs.
bool accepts_encoding(const Op& op, std::size_t input, const Encoding& encoding);

/// The information that a gradient rule has about the node it differentiates.
struct GradientContext {
  GraphBuilder& graph;
  std::span<const ValueId> inputs;
  std::span<const ValueId> outputs;
  /// One per output; invalid if the loss does not depend on that output.
  std::span<const ValueId> output_grads;
  /// One per input: whether its gradient is needed. Rules should not build gradients that are not.
  std::span<const bool> wanted;
  /// One per input: the type in which its gradient is stored. If the span is empty, all are f32.
  /// Rules that append ops with an output type attribute set it to this type. Gradients of other
  /// types are converted after the rule has run.
  std::span<const DType> types = {};

  DType type(std::size_t input) const { return types.empty() ? DType::kF32 : types[input]; }
};
/// One per input; invalid if there is no gradient (index inputs) or it is not wanted.
using Gradients = std::vector<ValueId>;

/// Appends the nodes that compute the gradients of one node's inputs. An op without a gradient is
/// an error that names it, never a silent zero.
Result<Gradients> gradient(const Op& op, const GradientContext& context);

/// Whether bit `i` of a mask is set; false for bits past its 32 bits.
constexpr bool in_mask(std::uint32_t mask, std::size_t i) {
  return i < 32 && ((mask >> i) & 1u) != 0;
}

/// The float types of an op's inputs and outputs, for all shapes. Bit i of a mask describes input i
/// or output i. A float input in neither mask is f32.
struct OpTypes {
  /// Inputs that all have the same type, f32, bf16 or f16.
  std::uint32_t activations;
  /// Inputs that may have any float type, independently of each other.
  std::uint32_t any;
  /// Outputs that have the type of the activations, or the type in the op's attribute `out`
  /// (MatMul, Embedding).
  std::uint32_t results;
};
OpTypes types(const Op& op);

/// The effects of an op on memory, for all shapes. Bit i of each mask describes input i.
struct OpEffects {
  /// The op writes the input in place.
  std::uint32_t writes;
  /// Output 0 may take the memory of the input, provided that both have the same size and no later
  /// step reads the input. For this, every kernel reads element j of the input for the last time
  /// before it writes element j of the output; ops on rows do so row by row. The op test cases
  /// check this.
  std::uint32_t overwrites;
};
OpEffects effects(const Op& op);
/// The mask of the inputs that the op writes, limited to the first `input_count` inputs.
std::uint32_t writes(const Op& op, std::size_t input_count);
/// Whether bit `input` of a mask is set; inputs past its 32 bits are never written.
constexpr bool writes_input(std::uint32_t written, std::size_t input) {
  return in_mask(written, input);
}
/// Whether output 0 may take the memory of this input; see OpEffects.
bool may_alias(const Op& op, std::size_t input);
/// The floating-point operations of an op, and the least number of bytes that it must move (inputs
/// once, outputs once).
struct OpCost {
  std::int64_t flops;
  std::int64_t bytes;
};
OpCost cost(const Op& op, std::span<const TensorSpec> inputs, std::span<const TensorSpec> outputs);
/// The op with its attributes, for dumps and messages: "MatMul{transpose_b, bias, gelu}".
std::string to_string(const Op& op);

// One overload per op, each in src/ops/<op>.cc. None has a default, so a forgotten one is a link
// error. Callers use the functions on Op above.
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
