// Puts casts around ops that the backend supports in f32 only. On 16-bit operands an op is defined
// as the f32 op between a widening and a rounding (ops/op.h), so the results keep their bits.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "graph/passes.h"
#include "graph/rewrite.h"
#include "ops/rules.h"

namespace volta {
namespace {

// The op with f32 as its output type, if it has such an attribute.
Op with_f32_result(Op op) {
  if (auto* matmul = std::get_if<MatMul>(&op)) matmul->out = DType::kF32;
  if (auto* embedding = std::get_if<Embedding>(&op)) embedding->out = DType::kF32;
  return op;
}

bool is_narrow(const TensorSpec& spec) {
  return is_float(spec.dtype) && spec.dtype != DType::kF32 && spec.encoding.plain();
}

// The specs of the operands with f32 in place of 16-bit types; nothing if the backend supports the
// op without casts, or does not support it even with them.
std::optional<std::vector<TensorSpec>> widened(const Op& op, std::span<const TensorSpec> specs,
                                               const Backend& backend) {
  // These ops are conversions themselves, so casts around them make no sense.
  if (std::holds_alternative<Cast>(op) || std::holds_alternative<Encode>(op)) return std::nullopt;
  if (backend.supports(op, specs)) return std::nullopt;
  const std::uint32_t written = writes(op, specs.size());
  std::vector<TensorSpec> wide(specs.begin(), specs.end());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (is_narrow(wide[i]) && !writes_input(written, i)) wide[i].dtype = DType::kF32;
  }
  if (!backend.supports(with_f32_result(op), wide)) return std::nullopt;
  return wide;
}

// Appends the node with f32 operands, and casts of its results to their original types.
Status add_in_f32(const Graph& graph, const Node& node, std::span<const TensorSpec> wide,
                  Rewriter& rewriter) {
  VOLTA_TRY(auto inputs, rewriter.at(node.inputs));
  Graph& target = rewriter.target();
  target.set_scope(node.label);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (target.spec(inputs[i]) == wide[i]) continue;
    VOLTA_TRY(inputs[i], target.add_one(Cast{DType::kF32}, {inputs[i]}));
  }
  VOLTA_TRY(const auto outputs, target.add(with_f32_result(node.op), inputs));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const DType wanted = graph.spec(node.outputs[i]).dtype;
    ValueId output = outputs[i];
    if (target.spec(output).dtype != wanted) {
      VOLTA_TRY(output, target.add_one(Cast{wanted}, {output}));
    }
    rewriter.replace(node.outputs[i], output);
  }
  return {};
}

}  // namespace

Result<Graph> legalize(const Graph& graph, const Backend& backend) {
  VOLTA_TRY(Rewriter rewriter, Rewriter::begin(graph));
  for (const Node& node : graph.nodes()) {
    std::vector<TensorSpec> specs;
    for (const ValueId input : node.inputs) specs.push_back(graph.spec(input));
    if (const auto wide = widened(node.op, specs, backend)) {
      VOLTA_TRY(add_in_f32(graph, node, *wide, rewriter));
    } else {
      VOLTA_TRY(rewriter.copy(node));
    }
  }
  return rewriter.finish();
}

}  // namespace volta
