// The graph as text: its inputs and other named values, its nodes in the order of execution, one
// per line, and its outputs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace volta {
namespace {

/// The printed name of each value: its own name, or %0, %1, ... for intermediates in the order of
/// execution, so that a dump does not depend on how the graph was built.
std::vector<std::string> value_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Value& value : graph.values()) names.push_back(value.name);
  int number = 0;
  for (const Node& node : graph.nodes()) {
    for (const ValueId id : node.outputs) {
      names[static_cast<std::size_t>(id.index)] = fmt::format("%{}", number++);
    }
  }
  return names;
}

}  // namespace

std::string to_text(const Graph& graph) {
  const std::vector<std::string> names = value_names(graph);
  const auto name_of = [&](ValueId id) -> const std::string& {
    return names[static_cast<std::size_t>(id.index)];
  };
  std::string text;
  auto out = std::back_inserter(text);
  for (const Value& value : graph.values()) {
    if (value.kind == ValueKind::kIntermediate) continue;
    fmt::format_to(out, "{} {}: {}\n", kind_name(value.kind), value.name, to_string(value.spec));
  }
  for (const Node& node : graph.nodes()) {
    std::vector<std::string> results;
    for (const ValueId id : node.outputs) {
      results.push_back(fmt::format("{}: {}", name_of(id), to_string(graph.spec(id))));
    }
    std::vector<std::string> operands;
    for (const ValueId id : node.inputs) operands.push_back(name_of(id));
    fmt::format_to(out, "{}{}{}({})", fmt::join(results, ", "), results.empty() ? "" : " = ",
                   to_string(node.op), fmt::join(operands, ", "));
    if (!node.label.empty()) fmt::format_to(out, "  # {}", node.label);
    text += '\n';
  }
  for (const GraphOutput& output : graph.outputs()) {
    fmt::format_to(out, "output {} = {}: {}\n", output.name, name_of(output.value),
                   to_string(graph.spec(output.value)));
  }
  return text;
}

}  // namespace volta
