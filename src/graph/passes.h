// Passes, which rewrite a graph; each has its own file. A pass does not change the results of a
// graph by a single bit, unless its comment says so. It keeps the order of effects, and its result
// passes verify().
#pragma once

#include <functional>

#include "base/result.h"
#include "graph/backend.h"
#include "graph/graph.h"

namespace [[gnu::visibility("default")]] volta {

/// Removes nodes that write nothing and whose outputs are not used.
Result<Graph> remove_dead_nodes(const Graph& graph);
/// Merges nodes with equal ops and equal inputs, unless one of the inputs is written between them.
Result<Graph> merge_common_subexpressions(const Graph& graph);
/// Evaluates nodes whose inputs are all constants. Nodes with large results stay.
Result<Graph> fold_constants(const Graph& graph, Backend& backend);
/// Fuses a MatMul with a bias, an activation and a residual that follow it into one MatMul with an
/// epilogue, if the backend supports it and no other node uses the results in between.
Result<Graph> fuse_epilogues(const Graph& graph, const Backend& backend);
/// Fuses a CrossEntropy and the CrossEntropyGrad of the same logits into one op that reads the
/// logits once, if the backend supports it, nothing else uses lse, and the loss's gradient does not
/// depend on the loss.
Result<Graph> fuse_cross_entropy(const Graph& graph, const Backend& backend);
/// Changes the types in a finished graph, including its backward part, so that it computes in
/// `dtype`; f32 changes nothing. The factors of a MatMul are rounded to `dtype` first. Parameters
/// are stored as before and rounded where they are used; encoded weights are not rounded at all.
/// With kActivations, products and lookups give results in `dtype`, and so does every op with an
/// activation in `dtype` as an input. Operands that ops/op.h declares as f32 stay f32. The same
/// holds for results that reach such an operand through sums and layout changes, such as the
/// gradients of parameters. Outputs of the graph keep their types. This pass changes results,
/// because it adds rounding.
Result<Graph> set_compute_dtype(const Graph& graph, DType dtype,
                                Rounding rounding = Rounding::kProducts);
/// Moves the casts of parameters to the front of a graph that writes parameters, so that a device
/// can do all of them at once. The backward part of such a graph needs the results again, so they
/// take no more memory. A graph that writes no parameter stays as it is. A pass for Backend::lower.
Result<Graph> hoist_casts(const Graph& graph);
/// Puts casts around nodes that the backend supports for f32 but not for their 16-bit operands. The
/// op then computes in f32 and its results are rounded once, as ops/op.h defines. Inputs that are
/// written or encoded keep their types. A node that is unsupported even with casts stays unchanged,
/// and the planner reports it.
Result<Graph> legalize(const Graph& graph, const Backend& backend);

/// Returns a spec for each parameter of a graph.
using ParameterSpecs = std::function<TensorSpec(const Value&)>;
/// Replaces the specs of the graph's parameters by those that `spec_of` returns: the type and the
/// encoding in which a model stores them. The shapes must not change. Every op that reads a
/// parameter must accept the new spec.
Result<Graph> set_parameter_specs(const Graph& graph, const ParameterSpecs& spec_of);

/// `spec` in `format`, if the format is narrower. A plain matrix in a quantised format gets
/// row-major integers without a block size; the block size is chosen later. Encoded tensors stay as
/// they are.
TensorSpec narrowed(TensorSpec spec, const WeightFormat& format);
/// Gives a parameter the encoding that the backend prefers for it, in `format` if that is narrower.
/// This applies to parameters that only matrix products and lookups read and no op writes. The code
/// that binds weights to the graph then rounds and packs them once (see Encode), so that the
/// kernels need not do it in every call.
Result<Graph> prepack(const Graph& graph, const Backend& backend, const WeightFormat& format = {});
/// The same, where `wanted` returns the type of each parameter and its format of integers, in
/// row-major order.
Result<Graph> prepack(const Graph& graph, const Backend& backend, const ParameterSpecs& wanted);

/// Options of `optimize`.
struct OptimizeOptions {
  DType compute_dtype = DType::kF32;
  Rounding rounding = Rounding::kProducts;
  bool fuse = true;
};
/// Runs the passes above that keep the specs of parameters, and Backend::lower, in a fixed order,
/// with verify() after each one. An error names the pass.
Result<Graph> optimize(const Graph& graph, Backend& backend, const OptimizeOptions& options = {});

}  // namespace volta
