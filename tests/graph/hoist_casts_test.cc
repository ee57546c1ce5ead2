#include <gtest/gtest.h>

#include "build.h"
#include "graph/passes.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using testing::must;

// Two products with weights that are rounded where they are used.
Graph products(bool updates, bool update_first) {
  Graph graph;
  const ValueId x = must(graph.input("x", {DType::kBF16, Shape(2, 3)}));
  const ValueId w = must(graph.parameter("w", f32(Shape(3, 3))));
  const ValueId v = must(graph.parameter("v", f32(Shape(3, 3))));
  if (update_first) testing::write(graph, Fill{1.0f}, {w});
  const MatMul product{.out = DType::kBF16};
  const ValueId first = add(graph, product, {x, add(graph, Cast{DType::kBF16}, {w})});
  const ValueId second = add(graph, product, {first, add(graph, Cast{DType::kBF16}, {v})});
  must(graph.output("y", add(graph, Cast{DType::kF32}, {second})));
  if (updates) testing::write(graph, Fill{0.0f}, {v});
  return graph;
}

TEST(HoistCasts, WeightsAreRoundedFirst) {
  const Graph graph = products(true, false);
  const Graph after = must(hoist_casts(graph));
  must(verify(after));
  EXPECT_EQ(to_text(after),
            "input x: bf16[2, 3]\n"
            "parameter w: f32[3, 3]\n"
            "parameter v: f32[3, 3]\n"
            "%0: bf16[3, 3] = Cast{bf16}(w)\n"
            "%1: bf16[3, 3] = Cast{bf16}(v)\n"
            "%2: bf16[2, 3] = MatMul{bf16}(x, %0)\n"
            "%3: bf16[2, 3] = MatMul{bf16}(%2, %1)\n"
            "%4: f32[2, 3] = Cast{f32}(%3)\n"
            "Fill{value=0}(v)\n"
            "output y = %4: f32[2, 3]\n");
}

TEST(HoistCasts, NotBeforeAWrite) {
  const Graph after = must(hoist_casts(products(true, true)));
  must(verify(after));
  EXPECT_EQ(testing::ops(after), "Cast Fill Cast MatMul MatMul Cast Fill");
  EXPECT_EQ(after.nodes()[0].inputs[0], after.nodes().back().inputs[0]);
}

TEST(HoistCasts, OnlyWhereParametersAreWritten) {
  const Graph graph = products(false, false);
  EXPECT_EQ(to_text(must(hoist_casts(graph))), to_text(graph));
}

}  // namespace
}  // namespace volta
