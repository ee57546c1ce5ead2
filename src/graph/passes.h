// Rewrites of a graph, one file each. A pass never changes what a graph computes (bit for bit,
// unless it says otherwise), keeps the order of effects, and its result verifies.
#pragma once

#include <functional>

#include "base/result.h"
#include "graph/backend.h"
#include "graph/graph.h"

namespace [[gnu::visibility("default")]] volta {

/// Drops nodes whose outputs nobody needs and which write nothing.
Result<Graph> remove_dead_nodes(const Graph& graph);
/// Merges nodes with equal ops and equal inputs, unless a write lies between them.
Result<Graph> merge_common_subexpressions(const Graph& graph);
/// Evaluates nodes whose inputs are all constants.
Result<Graph> fold_constants(const Graph& graph, Backend& backend);
/// MatMul followed by a bias, an activation or a residual that nobody else needs becomes one
/// MatMul with an epilogue, where the backend supports it.
Result<Graph> fuse_epilogues(const Graph& graph, const Backend& backend);
/// Types a finished graph, its backward part included, for computing in `dtype`; f32 changes
/// nothing. What a MatMul multiplies is rounded to `dtype` first; parameters are rounded where they
/// are used and stay as they are stored, and encoded weights are not rounded at all. With
/// kActivations products and lookups give `dtype`, and so does every op that takes an activation;
/// what ops/op.h calls f32 stays f32, and so do sums and layouts of it on its way to an op that
/// needs it: the gradients of parameters. Outputs of the graph keep their types. This pass does
/// change results, by the rounding.
Result<Graph> set_compute_dtype(const Graph& graph, DType dtype,
                                Rounding rounding = Rounding::kProducts);
/// Puts casts around the nodes that the backend supports on f32 but not on their 16-bit operands:
/// the op computes in f32 and its results are rounded once, which is what the op means. Written and
/// encoded inputs keep their types. A node that is not supported even so stays for the planner to
/// refuse.
Result<Graph> legalize(const Graph& graph, const Backend& backend);

/// A spec for each parameter of a graph.
using ParameterSpecs = std::function<TensorSpec(const Value&)>;
/// The specs of the graph's parameters become what `spec_of` gives for their values: another type
/// or encoding of the same shape, as the model that is bound to it stores them. Every op that reads
/// one must accept it.
Result<Graph> set_parameter_specs(const Graph& graph, const ParameterSpecs& spec_of);

/// `spec` in `format` where that is narrower: another type, or, for a plain matrix, in integers, in
/// rows, with no blocks chosen yet.
TensorSpec narrowed(TensorSpec spec, const WeightFormat& format);
/// Gives every parameter that only matrix products (and lookups) read, and nothing writes, the
/// encoding that the backend prefers for it, in `format` where that is narrower. What binds the
/// graph rounds and packs the weights accordingly, once (see Encode), instead of the kernels in
/// every call.
Result<Graph> prepack(const Graph& graph, const Backend& backend, const WeightFormat& format = {});
/// The same, from what `wanted` says of each parameter: its type, and integers in rows.
Result<Graph> prepack(const Graph& graph, const Backend& backend, const ParameterSpecs& wanted);

/// What `optimize` does.
struct OptimizeOptions {
  DType compute_dtype = DType::kF32;
  Rounding rounding = Rounding::kProducts;
  bool fuse = true;
};
/// All passes in their fixed order, with verify after each; an error names the pass.
Result<Graph> optimize(const Graph& graph, Backend& backend, const OptimizeOptions& options = {});

}  // namespace volta
