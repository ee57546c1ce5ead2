// The compute type: what enters a MatMul is rounded to it first. Weights stay as stored; equal
// casts are merged by merge_common_subexpressions.
#include <fmt/format.h>

#include <array>
#include <variant>

#include "graph/passes.h"
#include "graph/rewrite.h"

namespace volta {

Result<Graph> set_compute_dtype(const Graph& graph, DType dtype) {
  if (!is_float(dtype)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot compute in {}: choose f32, bf16 or f16", dtype_name(dtype)));
  }
  if (dtype == DType::kF32) return graph;
  VOLTA_TRY(Rewriter rewriter, Rewriter::begin(graph));
  for (const Node& node : graph.nodes()) {
    VOLTA_TRY(auto inputs, rewriter.at(node.inputs));
    if (std::holds_alternative<MatMul>(node.op)) {
      rewriter.target().set_scope(node.label);
      for (std::size_t i = 0; i < 2; ++i) {  // a and b; bias and residual stay f32.
        const TensorSpec spec = graph.spec(node.inputs[i]);
        if (spec.dtype == dtype || !spec.encoding.plain()) continue;
        VOLTA_TRY(inputs[i], rewriter.target().add_one(Cast{dtype}, {inputs[i]}));
      }
    }
    VOLTA_TRY(rewriter.replace_node(node, node.op, inputs));
  }
  return rewriter.finish();
}

}  // namespace volta
