// Sets the compute type. Weights are stored as before and rounded where they are used.
// merge_common_subexpressions merges equal casts later.
//
// With Rounding::kActivations, the results of products and lookups have 16 bits. If one activation
// of an op has 16 bits, all its activations and results get 16 bits. Statistics, losses and sums
// are f32, and stay so until an op combines them with an activation of 16 bits. An op stays in f32
// if its result reaches, perhaps through sums and layout changes, an operand that is always f32 (of
// an optimiser, or of a norm of gradients). Otherwise the gradients of parameters would be rounded.
#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "graph/passes.h"
#include "graph/rewrite.h"
#include "ops/rules.h"

namespace volta {
namespace {

class Typer {
 public:
  Typer(const Graph& graph, DType dtype, Rounding rounding, Rewriter rewriter)
      : graph_(graph),
        dtype_(dtype),
        narrows_(rounding == Rounding::kActivations),
        needed_in_f32_(graph.values().size()),
        rewriter_(std::move(rewriter)) {}

  Result<Graph> run() {
    if (narrows_) find_needs();
    for (const Node& node : graph_.nodes()) VOLTA_TRY(visit(node));
    for (const GraphOutput& output : graph_.outputs()) {
      VOLTA_TRY(const ValueId rewritten, rewriter_.at(output.value));
      VOLTA_TRY(const ValueId typed, cast(rewritten, graph_.spec(output.value).dtype));
      rewriter_.replace(output.value, typed);
    }
    return rewriter_.finish();
  }

 private:
  static std::size_t index(ValueId id) { return static_cast<std::size_t>(id.index); }

  /// Finds the values that some op needs in f32. Visits the last node first.
  void find_needs() {
    for (std::size_t n = graph_.nodes().size(); n-- > 0;) {
      const Node& node = graph_.nodes()[n];
      const OpTypes allowed = types(node.op);
      const bool wide = result_needed_in_f32(node, allowed);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const bool activation = in_mask(allowed.activations, i);
        const bool always = !activation && !in_mask(allowed.any, i);
        if (always || (activation && wide)) needed_in_f32_[index(node.inputs[i])] = true;
      }
    }
  }

  bool result_needed_in_f32(const Node& node, const OpTypes& allowed) const {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (in_mask(allowed.results, i) && needed_in_f32_[index(node.outputs[i])]) return true;
    }
    return false;
  }

  Status visit(const Node& node) {
    VOLTA_TRY(auto inputs, rewriter_.at(node.inputs));
    rewriter_.target().set_scope(node.label);
    Op op = node.op;
    if (std::holds_alternative<MatMul>(op)) {
      VOLTA_TRY(inputs[0], factor(inputs[0]));
      VOLTA_TRY(inputs[1], factor(inputs[1]));
    }
    if (narrows_) VOLTA_TRY(set_types(node, op, inputs));
    return rewriter_.replace_node(node, op, inputs);
  }

  /// Gives all activations of a node the same type, and sets the output type of an op that has one.
  Status set_types(const Node& node, Op& op, std::span<ValueId> inputs) {
    const OpTypes allowed = types(op);
    auto* matmul = std::get_if<MatMul>(&op);
    auto* embedding = std::get_if<Embedding>(&op);
    bool narrow = matmul != nullptr || embedding != nullptr;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      narrow = narrow || (in_mask(allowed.activations, i) && spec(inputs[i]).dtype == dtype_);
    }
    if (result_needed_in_f32(node, allowed)) narrow = false;
    if (matmul != nullptr) matmul->out = narrow ? dtype_ : DType::kF32;
    if (embedding != nullptr) embedding->out = narrow ? dtype_ : DType::kF32;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!is_float(spec(inputs[i]).dtype) || in_mask(allowed.any, i)) continue;
      const bool activation = in_mask(allowed.activations, i);
      VOLTA_TRY(inputs[i], cast(inputs[i], activation && narrow ? dtype_ : DType::kF32));
    }
    return {};
  }

  /// A factor of a MatMul, cast to the compute type. Encoded weights are not cast.
  Result<ValueId> factor(ValueId value) {
    return spec(value).encoding.plain() ? cast(value, dtype_) : value;
  }

  Result<ValueId> cast(ValueId value, DType dtype) {
    if (spec(value).dtype == dtype) return value;
    return rewriter_.target().add_one(Cast{dtype}, {value});
  }

  TensorSpec spec(ValueId value) { return rewriter_.target().spec(value); }

  const Graph& graph_;
  DType dtype_;
  bool narrows_;                     ///< Whether activations are rounded, too.
  std::vector<bool> needed_in_f32_;  ///< By value of the source graph.
  Rewriter rewriter_;
};

}  // namespace

Result<Graph> set_compute_dtype(const Graph& graph, DType dtype, Rounding rounding) {
  if (!is_float(dtype)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot compute in {}: choose f32, bf16 or f16", dtype_name(dtype)));
  }
  if (dtype == DType::kF32) return graph;
  VOLTA_TRY(Rewriter rewriter, Rewriter::begin(graph));
  return Typer(graph, dtype, rounding, std::move(rewriter)).run();
}

}  // namespace volta
