// Weights in the encoding that the backend's kernels read fastest.
#include <cstddef>
#include <optional>
#include <vector>

#include "graph/passes.h"
#include "graph/rewrite.h"
#include "ops/rules.h"

namespace volta {
namespace {

// What the readers of a value want: nothing yet, one encoding, or no common one.
struct Wish {
  std::optional<Encoding> encoding;
  std::optional<Encoding> stored = {};
  bool possible = true;
};

void add_use(Wish& wish, const Encoding& preferred) {
  if (preferred.plain()) return;
  if (wish.encoding && *wish.encoding != preferred) wish.possible = false;
  wish.encoding = preferred;
}

// The wish for every value that is a parameter in plain rows, by the ops that read it.
std::vector<Wish> collect_wishes(const Graph& graph, const Backend& backend,
                                 const ParameterSpecs& wanted) {
  std::vector<Wish> wishes(graph.values().size());
  for (const Node& node : graph.nodes()) {
    const std::uint32_t written = writes(node.op, node.inputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Value& value = graph.value(node.inputs[i]);
      if (value.kind != ValueKind::kParameter) continue;
      Wish& wish = wishes[static_cast<std::size_t>(node.inputs[i].index)];
      if (writes_input(written, i)) wish.possible = false;
      add_use(wish, backend.preferred_encoding(node.op, i, wanted(value)));
      // Where no reader has a preference, blocks of integers stay as they are stored.
      const Encoding stored = wanted(value).encoding;
      if (stored.quantized() && stored.block != 0) wish.stored = stored;
    }
  }
  for (Wish& wish : wishes) {
    if (!wish.encoding) wish.encoding = wish.stored;
  }
  return wishes;
}

// Takes back the wishes that some other reader of the value cannot live with.
void check_readers(const Graph& graph, const Backend& backend, const ParameterSpecs& wanted,
                   std::vector<Wish>& wishes) {
  for (const Node& node : graph.nodes()) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      Wish& wish = wishes[static_cast<std::size_t>(node.inputs[i].index)];
      if (!wish.encoding || !wish.possible) continue;
      std::vector<TensorSpec> specs;
      for (const ValueId input : node.inputs) specs.push_back(graph.spec(input));
      specs[i] = wanted(graph.value(node.inputs[i]));
      specs[i].encoding = *wish.encoding;
      wish.possible =
          accepts_encoding(node.op, i, *wish.encoding) && backend.supports(node.op, specs);
    }
  }
  for (const GraphOutput& output : graph.outputs()) {
    wishes[static_cast<std::size_t>(output.value.index)].possible = false;
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
  std::vector<Wish> wishes = collect_wishes(graph, backend, wanted);
  check_readers(graph, backend, wanted, wishes);
  return set_parameter_specs(graph, [&](const Value& value) {
    const auto id = graph.find(value.name);
    if (!id || value.spec.encoding.packing == Packing::kPanels) return value.spec;
    const Wish& wish = wishes[static_cast<std::size_t>(id->index)];
    if (!wish.possible || !wish.encoding) return value.spec;
    TensorSpec spec = wanted(value);
    spec.encoding = *wish.encoding;
    return spec;
  });
}

Result<Graph> prepack(const Graph& graph, const Backend& backend, const WeightFormat& format) {
  return prepack(graph, backend, [&](const Value& value) { return narrowed(value.spec, format); });
}

}  // namespace volta
