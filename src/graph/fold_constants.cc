// Constant folding: evaluates nodes that depend on constants only. The results become constants of
// the graph. A node whose results are large and larger than its inputs stays.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "graph/passes.h"
#include "graph/rewrite.h"

namespace volta {
namespace {

/// Results of up to this many bytes are always folded. Larger results are folded only if they are
/// not larger than the inputs, so that folding an Expand of a scalar cannot make a graph huge.
constexpr std::int64_t kAlwaysFoldedBytes = 64 << 10;

std::int64_t total_bytes(const Graph& graph, std::span<const ValueId> ids) {
  std::int64_t bytes = 0;
  for (const ValueId id : ids) bytes += graph.spec(id).bytes();
  return bytes;
}

/// `inputs` are the node's inputs in the new graph, `target`.
bool can_fold(const Graph& target, std::span<const ValueId> inputs, const Graph& source,
              const Node& node, const Backend& backend) {
  const auto is_constant = [&](ValueId id) {
    return target.value(id).kind == ValueKind::kConstant;
  };
  if (inputs.empty() || !std::ranges::all_of(inputs, is_constant)) return false;
  if (total_bytes(source, node.outputs) >
      std::max(kAlwaysFoldedBytes, total_bytes(target, inputs))) {
    return false;
  }
  std::vector<TensorSpec> specs;
  for (const ValueId id : inputs) specs.push_back(target.spec(id));
  return backend.supports(node.op, specs);
}

Status fold(const Node& node, std::span<const ValueId> inputs, const Graph& source,
            Rewriter& rewriter, Backend& backend) {
  std::vector<Tensor> operands;
  for (const ValueId id : inputs) operands.push_back(rewriter.target().value(id).constant);
  VOLTA_TRY(std::vector<Tensor> results, backend.evaluate(node.op, operands));
  if (results.size() != node.outputs.size()) {
    return fail(ErrorCode::kInternal, fmt::format("evaluating gives {} results, should give {}",
                                                  results.size(), node.outputs.size()));
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].spec() != source.spec(node.outputs[i])) {
      return fail(ErrorCode::kInternal,
                  fmt::format("evaluating gives {}, should give {}", to_string(results[i].spec()),
                              to_string(source.spec(node.outputs[i]))));
    }
    VOLTA_TRY(const ValueId folded, rewriter.add_constant("folded", std::move(results[i])));
    rewriter.replace(node.outputs[i], folded);
  }
  return {};
}

}  // namespace

Result<Graph> fold_constants(const Graph& graph, Backend& backend) {
  VOLTA_TRY(Rewriter rewriter, Rewriter::begin(graph));
  for (const Node& node : graph.nodes()) {
    VOLTA_TRY(const auto inputs, rewriter.at(node.inputs));
    if (!can_fold(rewriter.target(), inputs, graph, node, backend)) {
      VOLTA_TRY(rewriter.copy(node));
      continue;
    }
    if (auto status = fold(node, inputs, graph, rewriter, backend); !status) {
      return std::unexpected(std::move(status).error().with_context(
          fmt::format("folding {} of '{}'", to_string(node.op), node.label)));
    }
  }
  return rewriter.finish();
}

}  // namespace volta
