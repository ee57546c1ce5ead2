// The fixed order of passes.
#include <fmt/format.h>

#include <cstddef>
#include <string_view>
#include <utility>

#include "graph/passes.h"

namespace volta {
namespace {

/// The result of a pass if it verifies; an error names the pass.
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
  // Dead nodes go first, so that nobody works on them. Folding comes before merging, which then
  // sees equal constants as one node's result; fusion after it, when every use is counted. Types
  // are set on what is fused, so that a fused op rounds once, where it stores.
  VOLTA_TRY(Graph graph, checked("dead nodes", remove_dead_nodes(source)));
  VOLTA_TRY(graph, simplified(graph, backend));
  if (options.fuse) {
    VOLTA_TRY(graph, checked("epilogue fusion", fuse_epilogues(graph, backend)));
  }
  const std::size_t fused = graph.nodes().size();
  VOLTA_TRY(graph, checked("compute dtype",
                           set_compute_dtype(graph, options.compute_dtype, options.rounding)));
  VOLTA_TRY(graph, checked("lowering", backend.lower(graph)));
  VOLTA_TRY(graph, checked("legalize", legalize(graph, backend)));
  // New casts may be equal, or be of constants.
  if (graph.nodes().size() != fused) {
    VOLTA_TRY(graph, simplified(graph, backend));
  }
  return checked("dead nodes", remove_dead_nodes(graph));
}

}  // namespace volta
