#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "build.h"
#include "graph/passes.h"
#include "interpreter.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using ::testing::HasSubstr;
using testing::message;
using testing::must;
using ::testing::StartsWith;
using testing::TestBackend;

// Two products of one input; one value scaled by a constant that has to be computed.
Graph sample() {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 4))));
  const ValueId w = must(graph.parameter("w", f32(Shape(4, 4))));
  const ValueId v = must(graph.parameter("v", f32(Shape(4, 4))));
  const ValueId two = must(graph.filled(Shape(), 2.0f));
  const ValueId four = add(graph, Unary{UnaryKind::kSquare}, {two});
  const ValueId a = add(graph, Unary{UnaryKind::kRelu}, {add(graph, MatMul{}, {x, w})});
  const ValueId b = add(graph, MatMul{}, {x, v});
  add(graph, Unary{UnaryKind::kTanh}, {b});  // Dead.
  const ValueId sum = add(graph, Binary{}, {b, a});
  must(graph.output("y", add(graph, Binary{BinaryKind::kMul}, {sum, four})));
  return graph;
}

TEST(Optimize, RunsAllPasses) {
  TestBackend backend;
  EXPECT_EQ(to_text(must(optimize(sample(), backend, {.compute_dtype = DType::kBF16}))),
            "input x: f32[2, 4]\n"
            "parameter w: f32[4, 4]\n"
            "parameter v: f32[4, 4]\n"
            "constant folded.0: f32[]\n"
            "%0: bf16[2, 4] = Cast{bf16}(x)\n"
            "%1: bf16[4, 4] = Cast{bf16}(v)\n"
            "%2: f32[2, 4] = MatMul(%0, %1)\n"
            "%3: bf16[4, 4] = Cast{bf16}(w)\n"
            "%4: f32[2, 4] = MatMul{relu, residual}(%0, %3, %2)\n"
            "%5: f32[2, 4] = Binary{mul}(%4, folded.0)\n"
            "output y = %5: f32[2, 4]\n");
}

TEST(Optimize, CanLeaveFusionOut) {
  TestBackend backend;
  EXPECT_EQ(testing::ops(must(optimize(sample(), backend, {.fuse = false}))),
            "MatMul Unary MatMul Binary Binary");
}

// The backend's rewriting comes last but for the casts around what it does not support.
TEST(Optimize, LetsTheBackendLower) {
  class Lowering final : public TestBackend {
   public:
    Result<Graph> lower(const Graph& graph) const override {
      if (refuses) return fail(ErrorCode::kUnsupported, "no such graph");
      Graph lowered = graph;
      const ValueId y = lowered.outputs()[0].value;
      must(lowered.output("z", must(lowered.add_one(Unary{UnaryKind::kExp}, {y}))));
      return lowered;
    }
    bool refuses = false;
  };
  Lowering backend;
  const Graph graph = must(optimize(sample(), backend));
  EXPECT_EQ(testing::ops(graph), "MatMul MatMul Binary Unary");
  ASSERT_EQ(graph.outputs().size(), 2u);
  EXPECT_EQ(graph.outputs()[1].name, "z");
  backend.refuses = true;
  EXPECT_EQ(message(optimize(sample(), backend)), "pass 'lowering': no such graph");
}

TEST(Optimize, NamesThePassThatFails) {
  TestBackend backend;
  EXPECT_THAT(message(optimize(sample(), backend, {.compute_dtype = DType::kI32})),
              StartsWith("pass 'compute dtype': cannot compute in i32"));
  backend.after_evaluate = [](auto) -> Result<std::vector<Tensor>> {
    return fail(ErrorCode::kOutOfMemory, "full");
  };
  const auto failed = optimize(sample(), backend);
  EXPECT_THAT(message(failed), StartsWith("pass 'constant folding': folding Unary{square} of ''"));
  EXPECT_EQ(failed.error().code(), ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace volta
