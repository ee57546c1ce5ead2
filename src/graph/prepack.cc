// Gives weights the encoding that the backend's kernels read fastest.
#include <cstddef>
#include <optional>
#include <variant>
#include <vector>

#include "graph/passes.h"
#include "graph/rewrite.h"
#include "ops/rules.h"

namespace volta {
namespace {

// The encoding that the readers of a weight prefer. It is empty if no reader has a preference.
// `possible` becomes false if no encoding suits all readers, or if the weight is written. `factor`
// says that a product reads the weight.
struct Preference {
  std::optional<Encoding> encoding;
  std::optional<Encoding> stored = {};
  bool possible = true;
  bool factor = false;
};

void add_use(Preference& preference, const Encoding& preferred) {
  if (preferred.plain()) return;
  if (preference.encoding && *preference.encoding != preferred) preference.possible = false;
  preference.encoding = preferred;
}

// The preference of each value's readers; only parameters get one.
std::vector<Preference> collect_preferences(const Graph& graph, const Backend& backend,
                                            const ParameterSpecs& wanted) {
  std::vector<Preference> preferences(graph.values().size());
  for (const Node& node : graph.nodes()) {
    const std::uint32_t written = writes(node.op, node.inputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Value& value = graph.value(node.inputs[i]);
      if (value.kind != ValueKind::kParameter) continue;
      Preference& preference = preferences[static_cast<std::size_t>(node.inputs[i].index)];
      if (writes_input(written, i)) preference.possible = false;
      add_use(preference, backend.preferred_encoding(node.op, i, wanted(value)));
      preference.factor |= i == 1 && std::holds_alternative<MatMul>(node.op);
      // If no reader prefers an encoding, blocks of integers keep the encoding in which they are
      // stored.
      const Encoding stored = wanted(value).encoding;
      if (stored.quantized() && stored.block != 0) preference.stored = stored;
    }
  }
  for (Preference& preference : preferences) {
    if (!preference.encoding) preference.encoding = preference.stored;
    // A backend that reads the factors of products in plain rows reads them in the wanted type.
    if (!preference.encoding && preference.factor) preference.encoding = Encoding{};
  }
  return preferences;
}

// Drops the preferences that another reader of the value does not support, and those of graph
// outputs.
void check_readers(const Graph& graph, const Backend& backend, const ParameterSpecs& wanted,
                   std::vector<Preference>& preferences) {
  for (const Node& node : graph.nodes()) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      Preference& preference = preferences[static_cast<std::size_t>(node.inputs[i].index)];
      if (!preference.encoding || !preference.possible) continue;
      std::vector<TensorSpec> specs;
      for (const ValueId input : node.inputs) specs.push_back(graph.spec(input));
      specs[i] = wanted(graph.value(node.inputs[i]));
      specs[i].encoding = *preference.encoding;
      preference.possible =
          (preference.encoding->plain() || accepts_encoding(node.op, i, *preference.encoding)) &&
          backend.supports(node.op, specs);
    }
  }
  for (const GraphOutput& output : graph.outputs()) {
    preferences[static_cast<std::size_t>(output.value.index)].possible = false;
  }
}

}  // namespace

TensorSpec narrowed(TensorSpec spec, const WeightFormat& format) {
  if (!spec.encoding.plain()) return spec;
  if (format.quant != Quant::kNone && spec.shape.rank() == 2) {
    spec.dtype = DType::kF32;
    spec.encoding.quant = format.quant;
  } else if (dtype_size(format.dtype) < dtype_size(spec.dtype)) {
    spec.dtype = format.dtype;
  }
  return spec;
}

Result<Graph> set_parameter_specs(const Graph& graph, const ParameterSpecs& spec_of) {
  VOLTA_TRY(Rewriter rewriter, Rewriter::begin(graph, spec_of));
  for (const Node& node : graph.nodes()) VOLTA_TRY(rewriter.copy(node));
  return rewriter.finish();
}

Result<Graph> prepack(const Graph& graph, const Backend& backend, const ParameterSpecs& wanted) {
  std::vector<Preference> preferences = collect_preferences(graph, backend, wanted);
  check_readers(graph, backend, wanted, preferences);
  return set_parameter_specs(graph, [&](const Value& value) {
    const auto id = graph.find(value.name);
    if (!id || value.spec.encoding.packing == Packing::kPanels) return value.spec;
    const Preference& preference = preferences[static_cast<std::size_t>(id->index)];
    if (!preference.possible || !preference.encoding) return value.spec;
    TensorSpec spec = wanted(value);
    // Integers that no reader takes stay as they are.
    if (preference.encoding->plain() && spec.encoding.quantized()) return value.spec;
    spec.encoding = *preference.encoding;
    return spec;
  });
}

Result<Graph> prepack(const Graph& graph, const Backend& backend, const WeightFormat& format) {
  return prepack(graph, backend, [&](const Value& value) { return narrowed(value.spec, format); });
}

}  // namespace volta
