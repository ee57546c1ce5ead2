#include <gtest/gtest.h>

#include "base/json.h"
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

TEST(PlanToJson, ShowsBindingsStepsAndOutputs) {
  const std::string text = to_json(sample());
  EXPECT_EQ(
      text,
      R"({"arena_bytes":192,"arena_bytes_unshared":256,"bindings":[)"
      R"({"name":"x","kind":"input","dtype":"f32","shape":[2,4],"bytes":32,"written":false},)"
      R"({"name":"w","kind":"parameter","dtype":"f32","shape":[4,4],"bytes":64,"written":false},)"
      R"({"name":"s","kind":"state","dtype":"f32","shape":[2,4],"bytes":32,"written":true}],"steps":[)"
      R"({"op":"MatMul","attributes":"MatMul","label":"h.0","flops":64,"bytes":128,"inputs":[)"
      R"({"binding":"x","offset":0,"bytes":32,"dtype":"f32","shape":[2,4]},)"
      R"({"binding":"w","offset":0,"bytes":64,"dtype":"f32","shape":[4,4]}],"outputs":[)"
      R"({"offset":0,"bytes":32,"dtype":"f32","shape":[2,4]}],)"
      R"("workspace_offset":64,"workspace_bytes":100},)"
      R"({"op":"Accumulate","attributes":"Accumulate{scale=1}","label":"","flops":16,"bytes":96,)"
      R"("inputs":[{"binding":"s","offset":0,"bytes":32,"dtype":"f32","shape":[2,4]},)"
      R"({"offset":0,"bytes":32,"dtype":"f32","shape":[2,4]}],"outputs":[],)"
      R"("workspace_offset":0,"workspace_bytes":0},)"
      R"({"op":"Unary","attributes":"Unary{relu}","label":"","flops":8,"bytes":64,"inputs":[)"
      R"({"offset":0,"bytes":32,"dtype":"f32","shape":[2,4]}],"outputs":[)"
      R"({"offset":0,"bytes":32,"dtype":"f32","shape":[2,4]}],)"
      R"("workspace_offset":0,"workspace_bytes":0}],"outputs":[)"
      R"({"name":"y","offset":0,"bytes":32,"dtype":"f32","shape":[2,4]},)"
      R"({"name":"s","binding":"s","offset":0,"bytes":32,"dtype":"f32","shape":[2,4]}]})");
  EXPECT_TRUE(parse_json(text, "plan"));
}

}  // namespace
}  // namespace volta
