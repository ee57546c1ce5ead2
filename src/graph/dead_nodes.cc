// Removes dead nodes in one backward sweep. Nodes that an output depends on, nodes that write, and
// the nodes that these depend on stay.
#include <algorithm>
#include <vector>

#include "graph/passes.h"
#include "graph/rewrite.h"

namespace volta {

Result<Graph> remove_dead_nodes(const Graph& graph) {
  std::vector<bool> needed(graph.values().size());
  const auto needs = [&](ValueId id) { return needed[static_cast<std::size_t>(id.index)]; };
  for (const GraphOutput& output : graph.outputs()) {
    needed[static_cast<std::size_t>(output.value.index)] = true;
  }
  std::vector<bool> live(graph.nodes().size());
  for (std::size_t i = live.size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    live[i] = writes(node.op, node.inputs.size()) != 0 || std::ranges::any_of(node.outputs, needs);
    if (!live[i]) continue;
    for (const ValueId id : node.inputs) needed[static_cast<std::size_t>(id.index)] = true;
  }

  VOLTA_TRY(Rewriter rewriter, Rewriter::begin(graph));
  for (std::size_t i = 0; i < live.size(); ++i) {
    if (live[i]) VOLTA_TRY(rewriter.copy(graph.nodes()[i]));
  }
  return rewriter.finish();
}

}  // namespace volta
