// A plan as JSON: what it looks like, that the same plan is read back, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "build.h"
#include "graph/plan.h"
#include "interpreter.h"
#include "ops/fields.h"
#include "random_graph.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using ::testing::HasSubstr;
using testing::message;
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

TEST(PlanToJson, ShowsBindingsStepsAndOutputs) {
  const std::string text = to_json(sample());
  EXPECT_EQ(
      text,
      R"({"arena_bytes":192,"arena_bytes_unshared":256,"bindings":[)"
      R"({"name":"x","kind":"input","dtype":"f32","shape":[2,4],"bytes":32,"written":false},)"
      R"({"name":"w","kind":"parameter","dtype":"f32","shape":[4,4],"bytes":64,"written":false},)"
      R"({"name":"s","kind":"state","dtype":"f32","shape":[2,4],"bytes":32,"written":true}],"steps":[)"
      R"({"op":"MatMul","fields":{"transpose_a":false,"transpose_b":false,"batched":false,"bias":false,)"
      R"("activation":"none","residual":false,"out":"f32"},"attributes":"MatMul","label":"h.0","node":0,"flops":64,"bytes":128,"inputs":[)"
      R"({"binding":"x","offset":0,"bytes":32,"dtype":"f32","shape":[2,4]},)"
      R"({"binding":"w","offset":0,"bytes":64,"dtype":"f32","shape":[4,4]}],"outputs":[)"
      R"({"offset":0,"bytes":32,"dtype":"f32","shape":[2,4]}],)"
      R"("workspace_offset":64,"workspace_bytes":100},)"
      R"({"op":"Accumulate","fields":{"scale":1},"attributes":"Accumulate{scale=1}","label":"",)"
      R"("node":1,"flops":16,"bytes":96,"inputs":[{"binding":"s","offset":0,"bytes":32,"dtype":"f32","shape":[2,4]},)"
      R"({"offset":0,"bytes":32,"dtype":"f32","shape":[2,4]}],"outputs":[],)"
      R"("workspace_offset":0,"workspace_bytes":0},)"
      R"({"op":"Unary","fields":{"kind":"relu","alpha":1},"attributes":"Unary{relu}","label":"","node":2,"flops":8,"bytes":64,"inputs":[)"
      R"({"offset":0,"bytes":32,"dtype":"f32","shape":[2,4]}],"outputs":[)"
      R"({"offset":0,"bytes":32,"dtype":"f32","shape":[2,4]}],)"
      R"("workspace_offset":0,"workspace_bytes":0}],"outputs":[)"
      R"({"name":"y","offset":0,"bytes":32,"dtype":"f32","shape":[2,4]},)"
      R"({"name":"s","binding":"s","offset":0,"bytes":32,"dtype":"f32","shape":[2,4]}]})");
}

void expect_same(const Plan& plan, const Plan& other) {
  EXPECT_EQ(plan.arena_bytes, other.arena_bytes);
  EXPECT_EQ(plan.arena_bytes_unshared, other.arena_bytes_unshared);
  ASSERT_EQ(plan.bindings.size(), other.bindings.size());
  for (std::size_t i = 0; i < plan.bindings.size(); ++i) {
    const PlanBinding &a = plan.bindings[i], &b = other.bindings[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(a.spec, b.spec);
    EXPECT_EQ(a.written, b.written);
    EXPECT_EQ(a.constant.spec(), b.constant.spec());
    EXPECT_TRUE(std::ranges::equal(must(a.constant.host_bytes()), must(b.constant.host_bytes())));
  }
  ASSERT_EQ(plan.steps.size(), other.steps.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep &a = plan.steps[i], &b = other.steps[i];
    EXPECT_EQ(key_of(a.op), key_of(b.op));
    EXPECT_EQ(a.inputs, b.inputs);
    EXPECT_EQ(a.outputs, b.outputs);
    EXPECT_EQ(a.workspace_offset, b.workspace_offset);
    EXPECT_EQ(a.workspace_bytes, b.workspace_bytes);
    EXPECT_EQ(a.label, b.label);
    EXPECT_EQ(a.node, b.node);
  }
  ASSERT_EQ(plan.outputs.size(), other.outputs.size());
  for (std::size_t i = 0; i < plan.outputs.size(); ++i) {
    EXPECT_EQ(plan.outputs[i].name, other.outputs[i].name);
    EXPECT_EQ(plan.outputs[i].operand, other.outputs[i].operand);
  }
}

TEST(PlanFromJson, GivesTheSamePlan) {
  const Plan plan = sample();
  expect_same(must(plan_from_json(to_json(plan), "plan")), plan);
}

TEST(PlanFromJson, KeepsTheDataOfConstants) {
  Graph graph;
  const std::vector<float> data = {0.1f, -0.0f, 1e-42f, 3e38f};
  const ValueId x = must(graph.input("x", f32(Shape(4))));
  const ValueId c = must(graph.constant("c", must(Tensor::from_values<float>(Shape(4), data))));
  must(graph.output("y", add(graph, Binary{}, {x, c})));
  const Plan plan = must(make_plan(graph, testing::TestBackend()));
  expect_same(must(plan_from_json(to_json(plan), "plan")), plan);
}

RC_GTEST_PROP(PlanFromJson, GivesTheSamePlanOfAnyGraph, (const std::vector<std::uint32_t>& tape)) {
  testing::TestBackend backend;
  backend.workspace = [](const Op& op) { return std::holds_alternative<MatMul>(op) ? 100 : 0; };
  const Plan plan = must(make_plan(testing::random_graph(tape), backend));
  const std::string text = to_json(plan);
  const Plan again = must(plan_from_json(text, "plan"));
  expect_same(again, plan);
  RC_ASSERT(to_json(again) == text);
  RC_ASSERT(to_text(again) == to_text(plan));
}

// The text of the sample with one part of it replaced.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = to_json(sample());
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("no " + from);
  return text.replace(at, from.size(), to);
}

// Streams and waits are written where there are any, and come back.
TEST(PlanFromJson, KeepsTheOrderOfStreams) {
  Plan plan = sample();
  ASSERT_GE(plan.steps.size(), 2u);
  EXPECT_EQ(to_json(plan).find("stream"), std::string::npos);
  plan.steps[1].stream = 2;
  plan.steps[1].waits = {0};
  const std::string text = to_json(plan);
  const Plan again = must(plan_from_json(text, "plan"));
  EXPECT_EQ(again.steps[0].stream, 0);
  EXPECT_EQ(again.steps[1].stream, 2);
  EXPECT_EQ(again.steps[1].waits, plan.steps[1].waits);
  EXPECT_EQ(to_json(again), text);
  std::string later = text;
  later.replace(later.find(R"("waits":[0])"), 11, R"("waits":[1])");
  EXPECT_THAT(message(plan_from_json(later, "plan.json")),
              HasSubstr("step 1 waits for step 1, which does not come before"));
  later.replace(later.find(R"("stream":2)"), 10, R"("stream":-2)");
  EXPECT_THAT(message(plan_from_json(later, "plan.json")), HasSubstr("stream"));
}

TEST(PlanFromJson, RefusesWhatIsNoPlan) {
  const std::vector<std::pair<std::string, const char*>> rows = {
      {"", "plan.json: not valid JSON"},
      {"{}", "arena_bytes"},
      {changed(R"("arena_bytes":192)", R"("arena_bytes":-1)"), "arena_bytes"},
      {changed(R"("arena_bytes":192)", R"("arena_bytes":128)"),
       "100 bytes at offset 64 do not fit into the arena"},
      {changed(R"("arena_bytes":192)", R"("arena_bytes":64)"), "do not fit into the arena"},
      {changed(R"("name":"w")", R"("name":"x")"), "bindings[1]: another binding is named 'x'"},
      {changed(R"("name":"w")", R"("name":"")"), "bindings[1]: a binding has no name"},
      {changed(R"("binding":"w")", R"("binding":"v")"),
       "inputs[1].binding: there is no binding 'v'"},
      {changed(R"("binding":"w","offset":0)", R"("binding":"w","offset":4)"),
       "64 bytes at offset 4 do not fit into binding 'w', 64 bytes"},
      {changed(R"("kind":"parameter")", R"("kind":"weight")"),
       "kind is 'weight'; it must be input, parameter, state or constant"},
      {changed(R"("kind":"parameter")", R"("kind":"constant")"), "data"},
      {changed(R"("kind":"input","dtype":"f32","shape":[2,4])",
               R"("kind":"constant","data":"00","dtype":"f32","shape":[2,4])"),
       "bindings[0].data: expected 64 hexadecimal digits, the bytes of f32[2, 4]"},
      {changed(R"("kind":"input","dtype":"f32","shape":[2,4])",
               R"("kind":"constant","data":"0G000000","dtype":"f32","shape":[1])"),
       "expected hexadecimal digits, 0 to 9 and a to f"},
      {changed(R"("transpose_b":false)", R"("transpose_b":"no")"), "fields.transpose_b"},
      {changed(R"("transpose_a":false)", R"("transpose_a":true)"), "steps[0]: MatMul{transpose_a}"},
      {changed(R"("residual":false)", R"("residual":true)"), "expected 3 inputs"},
      {changed(R"("outputs":[{"offset":0,"bytes":32,"dtype":"f32","shape":[2,4]}])",
               R"("outputs":[])"),
       "steps[0]: MatMul has 1 outputs, not 0"},
      {changed(R"("outputs":[{"offset":0,"bytes":32,"dtype":"f32","shape":[2,4]}])",
               R"("outputs":[{"offset":0,"dtype":"f32","shape":[4,2]}])"),
       "output 0 of MatMul is f32[2, 4], not f32[4, 2]"},
      {changed(R"("written":true)", R"("written":false)"),
       "Accumulate{scale=1} writes its input 0, which is no binding that is written"},
      {changed(R"("workspace_bytes":100)", R"("workspace_bytes":-1)"), "workspace_bytes"},
      {changed(R"("workspace_bytes":100)", R"("workspace_bytes":193)"),
       "193 bytes at offset 64 do not fit into the arena"},
  };
  for (const auto& [text, message] : rows) {
    const auto plan = plan_from_json(text, "plan.json");
    ASSERT_FALSE(plan) << text;
    EXPECT_EQ(plan.error().code(), ErrorCode::kInvalidFile) << text;
    EXPECT_THAT(plan.error().message(), HasSubstr(message)) << text;
    EXPECT_THAT(plan.error().message(), HasSubstr("plan.json")) << text;
  }
}

}  // namespace
}  // namespace volta
