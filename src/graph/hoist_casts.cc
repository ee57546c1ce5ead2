// Casts of parameters, all of them at the front of a training graph.
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "graph/passes.h"
#include "graph/rewrite.h"
#include "ops/rules.h"

namespace volta {
namespace {

bool is_parameter(const Graph& graph, ValueId id) {
  return graph.values()[static_cast<std::size_t>(id.index)].kind == ValueKind::kParameter;
}

/// By value: the index of the first node that writes it, or the number of nodes.
std::vector<std::size_t> first_writes(const Graph& graph) {
  const std::size_t count = graph.nodes().size();
  std::vector<std::size_t> first(graph.values().size(), count);
  for (std::size_t n = count; n-- > 0;) {
    const Node& node = graph.nodes()[n];
    const std::uint32_t written = writes(node.op, node.inputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (writes_input(written, i)) first[static_cast<std::size_t>(node.inputs[i].index)] = n;
    }
  }
  return first;
}

}  // namespace

Result<Graph> hoist_casts(const Graph& graph) {
  const std::size_t count = graph.nodes().size();
  const std::vector<std::size_t> first_write = first_writes(graph);
  bool trains = false;
  for (std::size_t v = 0; v < first_write.size(); ++v) {
    const bool parameter = graph.values()[v].kind == ValueKind::kParameter;
    trains = trains || (parameter && first_write[v] < count);
  }
  if (!trains) return graph;

  VOLTA_TRY(Rewriter rewriter, Rewriter::begin(graph));
  std::vector<bool> hoisted(count);
  for (std::size_t n = 0; n < count; ++n) {
    const Node& node = graph.nodes()[n];
    if (!std::holds_alternative<Cast>(node.op) || !is_parameter(graph, node.inputs[0])) continue;
    if (first_write[static_cast<std::size_t>(node.inputs[0].index)] < n) continue;
    hoisted[n] = true;
    VOLTA_TRY(rewriter.copy(node));
  }
  for (std::size_t n = 0; n < count; ++n) {
    if (!hoisted[n]) VOLTA_TRY(rewriter.copy(graph.nodes()[n]));
  }
  return rewriter.finish();
}

}  // namespace volta
