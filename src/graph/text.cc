// The graph as text: what it takes, one node a line in the order of execution, what it gives.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/value_names.h"

namespace volta {

std::string to_text(const Graph& graph) {
  const ValueNames names(graph);
  std::string text;
  auto out = std::back_inserter(text);
  for (const Value& value : graph.values()) {
    if (value.kind == ValueKind::kIntermediate) continue;
    fmt::format_to(out, "{} {}: {}\n", kind_name(value.kind), value.name, to_string(value.spec));
  }
  for (const Node& node : graph.nodes()) {
    std::vector<std::string> results;
    for (const ValueId id : node.outputs) {
      results.push_back(fmt::format("{}: {}", names(id), to_string(graph.spec(id))));
    }
    std::vector<std::string> operands;
    for (const ValueId id : node.inputs) operands.push_back(names(id));
    fmt::format_to(out, "{}{}{}({})", fmt::join(results, ", "), results.empty() ? "" : " = ",
                   to_string(node.op), fmt::join(operands, ", "));
    if (!node.label.empty()) fmt::format_to(out, "  # {}", node.label);
    text += '\n';
  }
  for (const GraphOutput& output : graph.outputs()) {
    fmt::format_to(out, "output {} = {}: {}\n", output.name, names(output.value),
                   to_string(graph.spec(output.value)));
  }
  return text;
}

}  // namespace volta
