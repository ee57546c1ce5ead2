#include <gtest/gtest.h>

#include "build.h"
#include "graph/passes.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using testing::must;

TEST(RemoveDeadNodes, KeepsOutputsEffectsAndWhatTheyNeed) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(4))));
  const ValueId s = must(graph.state("s", f32(Shape(4))));
  must(graph.parameter("unused", f32(Shape(4))));
  const ValueId dead = add(graph, Unary{UnaryKind::kTanh}, {x});
  add(graph, Unary{UnaryKind::kRelu}, {dead});
  const ValueId y = add(graph, Unary{UnaryKind::kSquare}, {x});
  testing::write(graph, Accumulate{}, {s, y});
  must(graph.output("z", add(graph, Unary{UnaryKind::kGelu}, {x})));
  graph.set_scope("end");

  const Graph after = must(remove_dead_nodes(graph));
  EXPECT_EQ(to_text(after),
            "input x: f32[4]\n"
            "state s: f32[4]\n"
            "parameter unused: f32[4]\n"
            "%0: f32[4] = Unary{square}(x)\n"
            "Accumulate{scale=1}(s, %0)\n"
            "%1: f32[4] = Unary{gelu}(x)\n"
            "output z = %1: f32[4]\n");
  EXPECT_EQ(after.scope(), "end");
}

TEST(RemoveDeadNodes, DropsUnusedConstants) {
  Graph graph;
  const ValueId kept = must(graph.filled(Shape(2), 1.0f));
  must(graph.filled(Shape(2), 2.0f));
  must(graph.output("kept", kept));
  const Graph after = must(remove_dead_nodes(graph));
  EXPECT_EQ(to_text(after), "constant filled 1 [2]: f32[2]\noutput kept = filled 1 [2]: f32[2]\n");
}

TEST(RemoveDeadNodes, KeepsANodeOfWhichOneOutputIsNeeded) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 4))));
  const ValueId w = must(graph.parameter("w", f32(Shape(4))));
  const std::vector<ValueId> operands{x, w};
  const auto outputs = must(graph.add(Norm{NormKind::kRms}, operands));
  must(graph.output("stats", outputs[1]));
  EXPECT_EQ(testing::ops(must(remove_dead_nodes(graph))), "Norm");
}

}  // namespace
}  // namespace volta
