// Runs the passes in their fixed order.
#include <fmt/format.h>

#include <cstddef>
#include <string_view>
#include <utility>

#include "graph/passes.h"

namespace volta {
namespace {

/// Returns the result of a pass if it passes verify(). An error names the pass.
Result<Graph> checked(std::string_view pass, Result<Graph> result) {
  const auto in_pass = [&](Error error) {
    return std::unexpected(std::move(error).with_context(fmt::format("pass '{}'", pass)));
  };
  if (!result) return in_pass(std::move(result).error());
  if (Status status = verify(*result); !status) return in_pass(std::move(status).error());
  return result;
}

Result<Graph> simplified(const Graph& graph, Backend& backend) {
  VOLTA_TRY(const Graph folded, checked("constant folding", fold_constants(graph, backend)));
  return checked("common subexpressions", merge_common_subexpressions(folded));
}

}  // namespace

Result<Graph> optimize(const Graph& source, Backend& backend, const OptimizeOptions& options) {
  VOLTA_TRY(verify(source));
  // Dead nodes are removed first, so that no pass works on them. Folding comes before merging, so
  // that nodes which it makes equal are merged. Fusion comes after merging, when the uses of each
  // value are final. Types are set after fusion, so that a fused op rounds only once, when it
  // stores.
  VOLTA_TRY(Graph graph, checked("dead nodes", remove_dead_nodes(source)));
  VOLTA_TRY(graph, simplified(graph, backend));
  if (options.fuse) {
    VOLTA_TRY(graph, checked("epilogue fusion", fuse_epilogues(graph, backend)));
    VOLTA_TRY(graph, checked("loss fusion", fuse_cross_entropy(graph, backend)));
  }
  const std::size_t fused = graph.nodes().size();
  VOLTA_TRY(graph, checked("compute dtype",
                           set_compute_dtype(graph, options.compute_dtype, options.rounding)));
  VOLTA_TRY(graph, checked("lowering", backend.lower(graph)));
  VOLTA_TRY(graph, checked("legalize", legalize(graph, backend)));
  // New casts may be equal to each other, or apply to constants.
  if (graph.nodes().size() != fused) {
    VOLTA_TRY(graph, simplified(graph, backend));
  }
  return checked("dead nodes", remove_dead_nodes(graph));
}

}  // namespace volta
