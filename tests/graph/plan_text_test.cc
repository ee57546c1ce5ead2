#include <gtest/gtest.h>

#include "build.h"
#include "graph/plan.h"
#include "interpreter.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using testing::must;

Plan sample() {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 4))));
  const ValueId w = must(graph.parameter("w", f32(Shape(4, 4))));
  const ValueId s = must(graph.state("s", f32(Shape(2, 4))));
  graph.set_scope("h.0");
  const ValueId y = add(graph, MatMul{}, {x, w});
  graph.set_scope("");
  testing::write(graph, Accumulate{}, {s, y});
  must(graph.output("y", add(graph, Unary{UnaryKind::kRelu}, {y})));
  must(graph.output("s", s));
  testing::TestBackend backend;
  backend.workspace = [](const Op& op) { return std::holds_alternative<MatMul>(op) ? 100 : 0; };
  return must(make_plan(graph, backend));
}

TEST(PlanToText, ShowsBindingsStepsAndOutputs) {
  EXPECT_EQ(to_text(sample()),
            "arena 192 bytes, 256 without sharing\n"
            "input x: f32[2, 4]\n"
            "parameter w: f32[4, 4]\n"
            "state s: f32[2, 4], written\n"
            "0: @0 f32[2, 4] = MatMul(x f32[2, 4], w f32[4, 4]) workspace @64 100 bytes"
            "  # h.0: 64 flops, 128 bytes\n"
            "1: Accumulate{scale=1}(s f32[2, 4], @0 f32[2, 4])  # 16 flops, 96 bytes\n"
            "2: @0 f32[2, 4] = Unary{relu}(@0 f32[2, 4])  # 8 flops, 64 bytes\n"
            "output y = @0 f32[2, 4]\n"
            "output s = s f32[2, 4]\n");
}

}  // namespace
}  // namespace volta
