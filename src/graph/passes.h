// Rewrites of a graph, one file each. A pass never changes what a graph computes (bit for bit,
// unless it says otherwise), keeps the order of effects, and its result verifies.
#pragma once

#include <functional>

#include "base/result.h"
#include "graph/backend.h"
#include "graph/graph.h"

namespace volta {

/// Drops nodes whose outputs nobody needs and which write nothing.
Result<Graph> remove_dead_nodes(const Graph& graph);
/// Merges nodes with equal ops and equal inputs, unless a write lies between them.
Result<Graph> merge_common_subexpressions(const Graph& graph);
/// Evaluates nodes whose inputs are all constants.
Result<Graph> fold_constants(const Graph& graph, Backend& backend);
/// MatMul followed by a bias, an activation or a residual that nobody else needs becomes one
/// MatMul with an epilogue, where the backend supports it.
Result<Graph> fuse_epilogues(const Graph& graph, const Backend& backend);
/// Rounds the float inputs of every MatMul to `dtype` first (the compute type); f32 changes
/// nothing, and encoded weights stay as they are. This pass does change results, by the rounding.
Result<Graph> set_compute_dtype(const Graph& graph, DType dtype);

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
  bool fuse = true;
};
/// All passes in their fixed order, with verify after each; an error names the pass.
Result<Graph> optimize(const Graph& graph, Backend& backend, const OptimizeOptions& options = {});

}  // namespace volta
