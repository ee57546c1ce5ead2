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
  bool possible = true;
};

void add_use(Wish& wish, const Encoding& preferred) {
  if (preferred.plain()) return;
  if (wish.encoding && *wish.encoding != preferred) wish.possible = false;
  wish.encoding = preferred;
}

// `spec` in `dtype` where that is narrower.
TensorSpec narrowed(TensorSpec spec, DType dtype) {
  if (dtype_size(dtype) < dtype_size(spec.dtype)) spec.dtype = dtype;
  return spec;
}

// The wish for every value that is a parameter in plain rows, by the ops that read it.
std::vector<Wish> collect_wishes(const Graph& graph, const Backend& backend, DType dtype) {
  std::vector<Wish> wishes(graph.values().size());
  for (const Node& node : graph.nodes()) {
    const std::uint32_t written = writes(node.op, node.inputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Value& value = graph.value(node.inputs[i]);
      if (value.kind != ValueKind::kParameter) continue;
      Wish& wish = wishes[static_cast<std::size_t>(node.inputs[i].index)];
      if (writes_input(written, i)) wish.possible = false;
      add_use(wish, backend.preferred_encoding(node.op, i, narrowed(value.spec, dtype)));
    }
  }
  return wishes;
}

// Takes back the wishes that some other reader of the value cannot live with.
void check_readers(const Graph& graph, const Backend& backend, DType dtype,
                   std::vector<Wish>& wishes) {
  for (const Node& node : graph.nodes()) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      Wish& wish = wishes[static_cast<std::size_t>(node.inputs[i].index)];
      if (!wish.encoding || !wish.possible) continue;
      std::vector<TensorSpec> specs;
      for (const ValueId input : node.inputs) specs.push_back(graph.spec(input));
      specs[i] = narrowed(specs[i], dtype);
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

Result<Graph> set_parameter_specs(const Graph& graph,
                                  const std::function<TensorSpec(const Value&)>& spec_of) {
  VOLTA_TRY(Rewriter rewriter, Rewriter::begin(graph, spec_of));
  for (const Node& node : graph.nodes()) VOLTA_TRY(rewriter.copy(node));
  return rewriter.finish();
}

Result<Graph> prepack(const Graph& graph, const Backend& backend, DType dtype) {
  std::vector<Wish> wishes = collect_wishes(graph, backend, dtype);
  check_readers(graph, backend, dtype, wishes);
  return set_parameter_specs(graph, [&](const Value& value) {
    TensorSpec spec = value.spec;
    const auto id = graph.find(value.name);
    if (!id) return spec;
    const Wish& wish = wishes[static_cast<std::size_t>(id->index)];
    if (!spec.encoding.plain() || !wish.possible || !wish.encoding) return spec;
    spec = narrowed(spec, dtype);
    spec.encoding = *wish.encoding;
    return spec;
  });
}

}  // namespace volta
