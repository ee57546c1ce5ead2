#include <gtest/gtest.h>

#include "build.h"
#include "graph/passes.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using testing::must;
using testing::ops;

constexpr Unary kTanh{UnaryKind::kTanh};

TEST(MergeCommonSubexpressions, MergesEqualNodesAndThenTheirReaders) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(4))));
  const ValueId a = add(graph, Unary{UnaryKind::kRelu}, {add(graph, kTanh, {x})});
  const ValueId b = add(graph, Unary{UnaryKind::kRelu}, {add(graph, kTanh, {x})});
  must(graph.output("sum", add(graph, Binary{}, {a, b})));
  const Graph after = must(merge_common_subexpressions(graph));
  EXPECT_EQ(to_text(after),
            "input x: f32[4]\n"
            "%0: f32[4] = Unary{tanh}(x)\n"
            "%1: f32[4] = Unary{relu}(%0)\n"
            "%2: f32[4] = Binary{add}(%1, %1)\n"
            "output sum = %2: f32[4]\n");
}

TEST(MergeCommonSubexpressions, TellsOpsInputsAndTheirOrderApart) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(4))));
  const ValueId y = must(graph.input("y", f32(Shape(4))));
  add(graph, Unary{UnaryKind::kScale, 0.5f}, {x});
  add(graph, Unary{UnaryKind::kScale, 0.25f}, {x});
  add(graph, Unary{UnaryKind::kScale, 0.0f}, {x});
  add(graph, Unary{UnaryKind::kScale, -0.0f}, {x});
  add(graph, Unary{UnaryKind::kScale, 0.5f}, {y});
  add(graph, Binary{BinaryKind::kSub}, {x, y});
  add(graph, Binary{BinaryKind::kSub}, {y, x});
  EXPECT_EQ(must(merge_common_subexpressions(graph)).nodes().size(), graph.nodes().size());
}

TEST(MergeCommonSubexpressions, DoesNotMergeOverAWriteNorTheWrites) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(4))));
  const ValueId s = must(graph.state("s", f32(Shape(4))));
  add(graph, kTanh, {s});
  testing::write(graph, Accumulate{}, {s, x});
  add(graph, kTanh, {s});
  testing::write(graph, Accumulate{}, {s, x});
  add(graph, kTanh, {s});
  add(graph, kTanh, {s});  // The only one that is another's equal.
  const Graph after = must(merge_common_subexpressions(graph));
  EXPECT_EQ(ops(after), "Unary Accumulate Unary Accumulate Unary");
}

TEST(MergeCommonSubexpressions, OutputsMayBecomeOneValue) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(4))));
  const ValueId inner = add(graph, kTanh, {x});
  must(graph.output("a", add(graph, kTanh, {x})));
  must(graph.output("b", add(graph, kTanh, {x})));
  must(graph.output("c", add(graph, Unary{UnaryKind::kRelu}, {inner})));
  const Graph after = must(merge_common_subexpressions(graph));
  EXPECT_EQ(to_text(after),
            "input x: f32[4]\n"
            "%0: f32[4] = Unary{tanh}(x)\n"
            "%1: f32[4] = Unary{relu}(%0)\n"
            "output a = %0: f32[4]\n"
            "output b = %0: f32[4]\n"
            "output c = %1: f32[4]\n");
}

}  // namespace
}  // namespace volta
