// The graph in Graphviz's language: `dot -Tsvg graph.dot > graph.svg`.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
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

/// The layer that a node or a parameter belongs to: its label up to the first number, as in
/// "model.layers.3" or "transformer.h.0", and whether it is part of the backward pass. Empty
/// outside of layers.
std::string layer_of(std::string_view label) {
  constexpr std::string_view kBackward = ".grad";
  for (std::size_t begin = 0; begin < label.size();) {
    const std::size_t end = std::min(label.find('.', begin), label.size());
    const std::string_view part = label.substr(begin, end - begin);
    // A name that begins with a number is not that of a layer.
    if (begin > 0 && !part.empty() && part.find_first_not_of("0123456789") == part.npos) {
      return fmt::format("{}{}", label.substr(0, end),
                         label.ends_with(kBackward) ? ", backward" : "");
    }
    begin = end + 1;
  }
  return {};
}

/// The shapes of the drawing. Those of a layer stand together in a box of their own.
class Shapes {
 public:
  /// Adds a line that declares a shape of a layer; to the drawing itself if `layer` is empty.
  void add(const std::string& layer, std::string_view line) {
    const auto [place, is_new] = places_.try_emplace(layer, groups_.size());
    if (is_new) groups_.push_back({layer, {}});
    groups_[place->second].lines += line;
  }
  bool has(const std::string& layer) const { return places_.contains(layer); }
  /// All lines, the layers in the order in which they were first named.
  std::string text() const {
    std::string text;
    for (const Group& group : groups_) {
      if (group.layer.empty()) {
        text += group.lines;
        continue;
      }
      text += fmt::format("  subgraph \"cluster_{0}\" {{\n  label=\"{0}\";\n{1}  }}\n",
                          escaped(group.layer), group.lines);
    }
    return text;
  }

 private:
  struct Group {
    std::string layer, lines;
  };
  std::vector<Group> groups_;
  std::map<std::string, std::size_t> places_;
};

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
  Shapes shapes;
  std::string edges;
  auto out = std::back_inserter(edges);
  std::map<std::int32_t, std::size_t> writers;  // By value: the last node that changed it.
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    shapes.add(layer_of(node.label),
               fmt::format("  n{} [shape=box, fillcolor=white, label=\"{}{}{}{}\"];\n", i,
                           escaped(to_string(node.op)), node.label.empty() ? "" : "\\n",
                           escaped(node.label), more[i]));
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
  for (std::size_t i = 0; i < graph.values().size(); ++i) {
    const Value& value = graph.values()[i];
    if (value.kind == ValueKind::kIntermediate) continue;
    const std::string layer = layer_of(value.name);
    shapes.add(shapes.has(layer) ? layer : std::string(),
               fmt::format("  v{} [shape=ellipse, fillcolor={}, label=\"{}\\n{} {}\"];\n", i,
                           color(value.kind), escaped(value.name), kind_name(value.kind),
                           to_string(value.spec)));
  }
  for (std::size_t i = 0; i < graph.outputs().size(); ++i) {
    const GraphOutput& output = graph.outputs()[i];
    shapes.add(
        {}, fmt::format("  o{} [shape=ellipse, fillcolor=palegreen, label=\"{}\\noutput {}\"];\n",
                        i, escaped(output.name), to_string(graph.spec(output.value))));
    fmt::format_to(out, "  {} -> o{};\n", source(graph, output.value), i);
  }
  constexpr std::string_view kStyle =
      "  graph [fontname=\"monospace\"];\n  node [fontname=\"monospace\", style=filled];\n"
      "  edge [fontname=\"monospace\"];\n";
  return fmt::format("digraph volta {{\n{}{}{}}}\n", kStyle, shapes.text(), edges);
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
