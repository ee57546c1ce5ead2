// The graph's dumps, as text and for Graphviz.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "build.h"
#include "graph/plan.h"
#include "interpreter.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using testing::must;

Graph sample() {
  Graph graph;
  const ValueId ids = must(graph.input("ids", {DType::kI32, Shape(2)}));
  const ValueId table = must(graph.parameter("wte", f32(Shape(8, 4))));
  const ValueId weight = must(graph.parameter("norm\\\"", {DType::kBF16, Shape(4)}));
  const ValueId state = must(graph.state("total", f32(Shape(2, 4))));
  const ValueId x = add(graph, Embedding{}, {table, ids});
  graph.set_scope("h.0");
  const ValueId y = add(graph, Norm{NormKind::kRms}, {x, weight});
  testing::write(graph, Accumulate{0.5f}, {state, y});
  graph.set_scope("");
  const ValueId z = add(graph, Binary{}, {y, must(graph.filled(Shape(), 1.0f))});
  must(graph.output("z", z));
  must(graph.output("total", state));
  return graph;
}

TEST(ToText, ShowsValuesNodesAndOutputs) {
  EXPECT_EQ(to_text(sample()),
            "input ids: i32[2]\n"
            "parameter wte: f32[8, 4]\n"
            "parameter norm\\\": bf16[4]\n"
            "state total: f32[2, 4]\n"
            "constant filled 1 []: f32[]\n"
            "%0: f32[2, 4] = Embedding(wte, ids)\n"
            "%1: f32[2, 4], %2: f32[2, 2] = Norm{rms, eps=1e-05}(%0, norm\\\")  # h.0\n"
            "Accumulate{scale=0.5}(total, %1)  # h.0\n"
            "%3: f32[2, 4] = Binary{add}(%1, filled 1 [])\n"
            "output z = %3: f32[2, 4]\n"
            "output total = total: f32[2, 4]\n");
}

TEST(ToText, OfAnEmptyGraphIsEmpty) { EXPECT_EQ(to_text(Graph()), ""); }

TEST(ToDot, ShowsValuesNodesAndOutputs) {
  EXPECT_EQ(to_dot(sample()),
            R"(digraph volta {
  graph [fontname="monospace"];
  node [fontname="monospace", style=filled];
  edge [fontname="monospace"];
  n0 [shape=box, fillcolor=white, label="Embedding"];
  n3 [shape=box, fillcolor=white, label="Binary{add}"];
  v0 [shape=ellipse, fillcolor=lightblue, label="ids\ninput i32[2]"];
  v1 [shape=ellipse, fillcolor=khaki, label="wte\nparameter f32[8, 4]"];
  v2 [shape=ellipse, fillcolor=khaki, label="norm\\\"\nparameter bf16[4]"];
  v3 [shape=ellipse, fillcolor=lightsalmon, label="total\nstate f32[2, 4]"];
  v7 [shape=ellipse, fillcolor=lightgray, label="filled 1 []\nconstant f32[]"];
  o0 [shape=ellipse, fillcolor=palegreen, label="z\noutput f32[2, 4]"];
  o1 [shape=ellipse, fillcolor=palegreen, label="total\noutput f32[2, 4]"];
  subgraph "cluster_h.0" {
  label="h.0";
  n1 [shape=box, fillcolor=white, label="Norm{rms, eps=1e-05}\nh.0"];
  n2 [shape=box, fillcolor=white, label="Accumulate{scale=0.5}\nh.0"];
  }
  v1 -> n0 [label="f32[8, 4]"];
  v0 -> n0 [label="i32[2]"];
  n0 -> n1 [label="f32[2, 4]"];
  v2 -> n1 [label="bf16[4]"];
  v3 -> n2 [label="f32[2, 4]", dir=both, color=red];
  n1 -> n2 [label="f32[2, 4]"];
  n1 -> n3 [label="f32[2, 4]"];
  v7 -> n3 [label="f32[]"];
  n3 -> o0;
  v3 -> o1;
}
)");
}

// A layer's parameters stand in its box, and its backward pass has a box of its own.
TEST(ToDot, LayersHaveBoxes) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 3))));
  const ValueId weight = must(graph.parameter("model.layers.1.norm", f32(Shape(3))));
  const ValueId other = must(graph.parameter("model.norm", f32(Shape(3))));
  graph.set_scope("model.layers.1.attn");
  const ValueId y = add(graph, Norm{NormKind::kRms}, {x, weight});
  graph.set_scope("model.layers.1.attn.grad");
  const ValueId z = add(graph, Norm{NormKind::kRms}, {y, weight});
  graph.set_scope("head");
  must(graph.output("y", add(graph, Norm{NormKind::kRms}, {z, other})));
  const std::string dot = to_dot(graph);
  const auto box = [&](std::string_view name) {
    const std::size_t begin = dot.find(std::string("subgraph \"cluster_").append(name) + "\" {");
    if (begin == std::string::npos) return std::string();
    return dot.substr(begin, dot.find("\n  }\n", begin) - begin);
  };
  EXPECT_THAT(box("model.layers.1"), ::testing::HasSubstr("  n0 ["));
  EXPECT_THAT(box("model.layers.1"), ::testing::HasSubstr("model.layers.1.norm"));
  EXPECT_THAT(box("model.layers.1"), ::testing::Not(::testing::HasSubstr("  n1 [")));
  EXPECT_THAT(box("model.layers.1, backward"), ::testing::HasSubstr("  n1 ["));
  EXPECT_EQ(dot.find("cluster_head"), std::string::npos) << dot;
  EXPECT_THAT(box("model.layers.1, backward"), ::testing::Not(::testing::HasSubstr("  n2 [")));
}

TEST(ToDot, WhatReadsAChangedValueIsDrawnBelowTheChange) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 3))));
  const ValueId sum = must(graph.state("sum", f32(Shape(2, 3))));
  testing::write(graph, Accumulate{1.0f}, {sum, x});
  must(graph.output("y", add(graph, Binary{}, {sum, x})));
  const std::string dot = to_dot(graph);
  EXPECT_NE(dot.find("  n0 -> n1 [style=dashed, color=red];\n"), std::string::npos) << dot;
  EXPECT_EQ(dot.find("n0 -> n0"), std::string::npos) << dot;
}

TEST(ToDot, OfAPlanShowsCostsAndPlaces) {
  Graph graph;
  const ValueId x = testing::must(graph.input("x", testing::f32(Shape(2, 3))));
  const ValueId w = testing::must(graph.parameter("w", testing::f32(Shape(3, 5))));
  testing::must(graph.output("y", testing::add(graph, MatMul{}, {x, w})));
  testing::TestBackend backend;
  const Plan plan = testing::must(make_plan(graph, backend));
  EXPECT_NE(to_dot(graph, plan).find("label=\"MatMul\\n60 flops, 124 B\\narena @0\""),
            std::string::npos)
      << to_dot(graph, plan);
}

}  // namespace
}  // namespace volta
