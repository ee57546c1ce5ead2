// Casts around what a backend computes in f32 only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <variant>
#include <vector>

#include "build.h"
#include "graph/passes.h"
#include "interpreter.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using testing::must;
using testing::TestBackend;

bool is_wide(const TensorSpec& spec) { return !is_float(spec.dtype) || spec.dtype == DType::kF32; }

// A backend that computes in f32 only, but for conversions and layouts; it lacks Dropout.
TestBackend f32_backend() {
  TestBackend backend;
  backend.supported = [](const Op& op, std::span<const TensorSpec> inputs) {
    if (std::holds_alternative<Cast>(op) || std::holds_alternative<Reshape>(op)) return true;
    if (std::holds_alternative<Dropout>(op)) return false;
    const auto outputs = infer(op, inputs);
    return std::ranges::all_of(inputs, is_wide) && outputs &&
           std::ranges::all_of(*outputs, is_wide);
  };
  return backend;
}

Graph narrow_net() {
  Graph graph;
  const ValueId x = must(graph.input("x", {DType::kBF16, Shape(2, 4)}));
  const ValueId w = must(graph.parameter("w", f32(Shape(4, 4))));
  graph.set_scope("layer");
  const ValueId y = add(graph, MatMul{.out = DType::kBF16}, {x, w});
  const ValueId z = add(graph, Reshape{Shape(8)}, {y});
  must(graph.output("t", add(graph, Unary{UnaryKind::kTanh}, {z})));
  must(graph.output("s", add(graph, Reduce{ReduceKind::kSum, 0, 1}, {z})));
  return graph;
}

TEST(Legalize, PutsCastsAroundWhatTheBackendLacks) {
  const TestBackend backend = f32_backend();
  const Graph legal = must(legalize(narrow_net(), backend));
  must(verify(legal));
  EXPECT_EQ(to_text(legal),
            "input x: bf16[2, 4]\n"
            "parameter w: f32[4, 4]\n"
            "%0: f32[2, 4] = Cast{f32}(x)  # layer\n"
            "%1: f32[2, 4] = MatMul(%0, w)  # layer\n"
            "%2: bf16[2, 4] = Cast{bf16}(%1)  # layer\n"
            "%3: bf16[8] = Reshape{[8]}(%2)  # layer\n"
            "%4: f32[8] = Cast{f32}(%3)  # layer\n"
            "%5: f32[8] = Unary{tanh}(%4)  # layer\n"
            "%6: bf16[8] = Cast{bf16}(%5)  # layer\n"
            "%7: f32[8] = Cast{f32}(%3)  # layer\n"
            "%8: f32[] = Reduce{sum, begin=0, end=1}(%7)  # layer\n"
            "output t = %6: bf16[8]\n"
            "output s = %8: f32[]\n");
}

TEST(Legalize, KeepsTheBits) {
  const TestBackend backend = f32_backend();
  const Graph legal = must(legalize(narrow_net(), backend));
  testing::Arrays before = testing::make_bindings(narrow_net());
  testing::Arrays after = before;
  EXPECT_EQ(testing::bits(testing::run_graph(narrow_net(), before)),
            testing::bits(testing::run_graph(legal, after)));
}

TEST(Legalize, LeavesWhatIsSupported) {
  EXPECT_EQ(to_text(must(legalize(narrow_net(), TestBackend()))), to_text(narrow_net()));
}

// The planner refuses it and says what the device lacks.
TEST(Legalize, LeavesWhatIsNotSupportedInF32Either) {
  Graph graph;
  const ValueId x = must(graph.input("x", {DType::kBF16, Shape(4)}));
  const ValueId rng = must(graph.input("rng", {DType::kI64, Shape(2)}));
  must(graph.output("y", add(graph, Dropout{0.5f}, {x, rng})));
  const TestBackend backend = f32_backend();
  EXPECT_EQ(to_text(must(legalize(graph, backend))), to_text(graph));
  EXPECT_THAT(testing::message(make_plan(graph, backend)),
              ::testing::HasSubstr("no kernel for Dropout{p=0.5, stream=0} of bf16[4] i64[2]"));
}

// A cache is written where it lies, so only the new rows are widened.
TEST(Legalize, LeavesWrittenInputs) {
  const AttentionShape shape = {.heads = 1, .kv_heads = 1, .head_dim = 4};
  Graph graph;
  const ValueId k = must(graph.input("k", {DType::kBF16, Shape(2, 4)}));
  const ValueId keys = must(graph.state("keys", {DType::kBF16, key_cache_shape(1, 1, 4)}));
  const ValueId values = must(graph.state("values", {DType::kBF16, value_cache_shape(1, 1, 4)}));
  const ValueId positions = must(graph.input("positions", {DType::kI32, Shape(2)}));
  const ValueId sequences = must(graph.input("sequences", {DType::kI32, Shape(2)}));
  const ValueId rows = must(graph.input("rows", {DType::kI32, Shape(1)}));
  const ValueId table = must(graph.input("table", {DType::kI32, Shape(1, 1)}));
  testing::write(graph, KvAppend{shape}, {k, k, keys, values, positions, sequences, rows, table});
  TestBackend backend;
  backend.supported = [](const Op&, std::span<const TensorSpec> inputs) {
    return is_wide(inputs[0]);
  };
  const Graph legal = must(legalize(graph, backend));
  must(verify(legal));
  EXPECT_EQ(testing::ops(legal), "Cast Cast KvAppend");
}

}  // namespace
}  // namespace volta
