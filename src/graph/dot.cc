// The graph in Graphviz's language: `dot -Tsvg graph.dot > graph.svg`.
#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "graph/graph.h"
#include "graph/plan.h"

namespace volta {
namespace {

/// Escapes a text for a quoted string in Graphviz's language.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string_view color(ValueKind kind) {
  switch (kind) {
    case ValueKind::kInput:
      return "lightblue";
    case ValueKind::kParameter:
      return "khaki";
    case ValueKind::kState:
      return "lightsalmon";
    case ValueKind::kConstant:
    case ValueKind::kIntermediate:
      break;
  }
  return "lightgray";
}

/// The dot node that represents a value: the box of its op, or its own ellipse if no op computes
/// it.
std::string source(const Graph& graph, ValueId id) {
  const std::int32_t producer = graph.value(id).producer;
  return producer < 0 ? fmt::format("v{}", id.index) : fmt::format("n{}", producer);
}

/// The lines of a step's box that follow the op and the label.
std::string step_lines(const PlanStep& step) {
  const OpCost spent = step_cost(step);
  std::string text =
      fmt::format("\\n{} flops, {}", format_count(spent.flops), format_bytes(spent.bytes));
  for (const PlanOperand& operand : step.outputs) {
    if (operand.binding < 0) text += fmt::format("\\narena @{}", operand.offset);
  }
  return text;
}

/// `more[i]` is added to the box of node i. A dashed edge leads from an op that changes a value in
/// place (a KV cache) to the ops that use the value afterwards, so that they are drawn below it.
std::string write_dot(const Graph& graph, const std::vector<std::string>& more) {
  std::string text =
      "digraph volta {\n  node [fontname=\"monospace\", style=filled];\n"
      "  edge [fontname=\"monospace\"];\n";
  auto out = std::back_inserter(text);
  for (std::size_t i = 0; i < graph.values().size(); ++i) {
    const Value& value = graph.values()[i];
    if (value.kind == ValueKind::kIntermediate) continue;
    fmt::format_to(out, "  v{} [shape=ellipse, fillcolor={}, label=\"{}\\n{} {}\"];\n", i,
                   color(value.kind), escaped(value.name), kind_name(value.kind),
                   to_string(value.spec));
  }
  std::map<std::int32_t, std::size_t> writers;  // By value: the last node that changed it.
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    fmt::format_to(out, "  n{} [shape=box, fillcolor=white, label=\"{}{}{}{}\"];\n", i,
                   escaped(to_string(node.op)), node.label.empty() ? "" : "\\n",
                   escaped(node.label), more[i]);
    const std::uint32_t written = writes(node.op, node.inputs.size());
    std::set<std::size_t> before;  // The nodes whose changes of values this node sees.
    for (std::size_t j = 0; j < node.inputs.size(); ++j) {
      const auto writer = writers.find(node.inputs[j].index);
      if (writer != writers.end()) before.insert(writer->second);
      if (writes_input(written, j)) writers[node.inputs[j].index] = i;
    }
    for (const std::size_t writer : before) {
      if (writer != i) fmt::format_to(out, "  n{} -> n{} [style=dashed, color=red];\n", writer, i);
    }
    for (std::size_t j = 0; j < node.inputs.size(); ++j) {
      fmt::format_to(out, "  {} -> n{} [label=\"{}\"{}];\n", source(graph, node.inputs[j]), i,
                     to_string(graph.spec(node.inputs[j])),
                     writes_input(written, j) ? ", dir=both, color=red" : "");
    }
  }
  for (std::size_t i = 0; i < graph.outputs().size(); ++i) {
    const GraphOutput& output = graph.outputs()[i];
    fmt::format_to(out, "  o{} [shape=ellipse, fillcolor=palegreen, label=\"{}\\noutput {}\"];\n",
                   i, escaped(output.name), to_string(graph.spec(output.value)));
    fmt::format_to(out, "  {} -> o{};\n", source(graph, output.value), i);
  }
  text += "}\n";
  return text;
}

}  // namespace

std::string to_dot(const Graph& graph) {
  return write_dot(graph, std::vector<std::string>(graph.nodes().size()));
}

std::string to_dot(const Graph& graph, const Plan& plan) {
  std::vector<std::string> more(graph.nodes().size());
  for (const PlanStep& step : plan.steps) {
    if (step.node < more.size()) more[step.node] = step_lines(step);
  }
  return write_dot(graph, more);
}

}  // namespace volta
