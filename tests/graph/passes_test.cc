// What every pass keeps, on random graphs: the graph verifies, and computes the same bits.
#include "graph/passes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>

#include "build.h"
#include "interpreter.h"
#include "random_graph.h"

namespace volta {
namespace {

using testing::Arrays;
using testing::must;
using testing::TestBackend;

using Tape = std::vector<std::uint32_t>;

// The bits of the outputs and of what the graph writes.
auto result_bits(const Graph& graph) {
  Arrays bindings = testing::make_bindings(graph);
  const Arrays outputs = testing::run_graph(graph, bindings);
  return std::pair(testing::bits(outputs), testing::bits(bindings));
}

void expect_same(const Graph& before, const Graph& after) {
  must(verify(after));
  RC_ASSERT(result_bits(before) == result_bits(after));
}

RC_GTEST_PROP(Passes, RemovingDeadNodesKeepsResults, (const Tape& tape)) {
  const Graph graph = testing::random_graph(tape);
  const Graph after = must(remove_dead_nodes(graph));
  expect_same(graph, after);
  RC_ASSERT(after.nodes().size() <= graph.nodes().size());
}

RC_GTEST_PROP(Passes, MergingKeepsResults, (const Tape& tape)) {
  const Graph graph = testing::random_graph(tape);
  const Graph after = must(merge_common_subexpressions(graph));
  expect_same(graph, after);
  RC_ASSERT(to_text(must(merge_common_subexpressions(after))) == to_text(after));
}

RC_GTEST_PROP(Passes, FoldingKeepsResults, (const Tape& tape)) {
  const Graph graph = testing::random_graph(tape);
  TestBackend backend;
  const Graph after = must(fold_constants(graph, backend));
  expect_same(graph, after);
}

RC_GTEST_PROP(Passes, FusingKeepsResults, (const Tape& tape)) {
  const Graph graph = testing::random_graph(tape);
  const Graph after = must(fuse_epilogues(graph, TestBackend()));
  expect_same(graph, after);
  RC_ASSERT(after.nodes().size() <= graph.nodes().size());
}

RC_GTEST_PROP(Passes, OptimizingKeepsResults, (const Tape& tape)) {
  const Graph graph = testing::random_graph(tape);
  TestBackend backend;
  const Graph after = must(optimize(graph, backend));
  expect_same(graph, after);
  RC_ASSERT(to_text(must(optimize(graph, backend))) == to_text(after));
}

RC_GTEST_PROP(Passes, OptimizingChangesResultsByTheComputeTypeOnly, (const Tape& tape)) {
  const Graph graph = testing::random_graph(tape);
  TestBackend backend;
  const Graph after = must(optimize(graph, backend, {.compute_dtype = DType::kBF16}));
  expect_same(must(set_compute_dtype(graph, DType::kBF16)), after);
}

}  // namespace
}  // namespace volta
