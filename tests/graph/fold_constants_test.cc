#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "build.h"
#include "graph/passes.h"
#include "interpreter.h"

namespace volta {
namespace {

using testing::add;
using ::testing::Each;
using testing::f32;
using ::testing::HasSubstr;
using testing::message;
using testing::must;
using testing::ops;
using testing::TestBackend;

constexpr Unary kSquare{UnaryKind::kSquare};

TEST(FoldConstants, ComputesWhatDependsOnConstantsOnly) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2))));
  const ValueId three = must(graph.filled(Shape(2), 3.0f));
  const ValueId nine = add(graph, kSquare, {three});
  const ValueId eighty_one = add(graph, kSquare, {nine});
  must(graph.output("y", add(graph, Binary{}, {x, eighty_one})));
  must(graph.output("nine", nine));

  TestBackend backend;
  const Graph after = must(fold_constants(graph, backend));
  EXPECT_EQ(backend.evaluated, 2);
  EXPECT_EQ(ops(after), "Binary");
  EXPECT_THAT(must(after.value(*after.find("folded.0")).constant.values<float>()), Each(9.0f));
  EXPECT_THAT(must(after.value(*after.find("folded.1")).constant.values<float>()), Each(81.0f));
  EXPECT_EQ(after.outputs()[1].value, *after.find("folded.0"));
}

TEST(FoldConstants, FindsFreeNames) {
  Graph graph;
  must(graph.input("folded.0", f32(Shape(2))));
  must(graph.output("y", add(graph, kSquare, {must(graph.filled(Shape(2), 3.0f))})));
  TestBackend backend;
  const Graph after = must(fold_constants(graph, backend));
  EXPECT_EQ(after.value(after.outputs()[0].value).name, "folded.1");
}

TEST(FoldConstants, LeavesWhatGrowsTooMuch) {
  Graph graph;
  const ValueId one = must(graph.filled(Shape(), 1.0f));
  add(graph, Expand{.shape = Shape(64, 256)}, {one});  // 64 KiB.
  add(graph, Expand{.shape = Shape(65, 256)}, {one});
  const ValueId large = must(graph.constant("large", must(Tensor::zeros(f32(Shape(65, 256))))));
  add(graph, kSquare, {large});  // Larger than that, but no growth.
  TestBackend backend;
  const Graph after = must(fold_constants(graph, backend));
  EXPECT_EQ(ops(after), "Expand");
  EXPECT_EQ(after.spec(after.nodes()[0].outputs[0]).shape, Shape(65, 256));
}

TEST(FoldConstants, LeavesWhatTheBackendCannotDo) {
  Graph graph;
  add(graph, kSquare, {must(graph.filled(Shape(2), 3.0f))});
  TestBackend backend;
  backend.supported = [](const Op&, auto) { return false; };
  EXPECT_EQ(ops(must(fold_constants(graph, backend))), "Unary");
  EXPECT_EQ(backend.evaluated, 0);
}

TEST(FoldConstants, ReportsWhatGoesWrong) {
  Graph graph;
  graph.set_scope("here");
  add(graph, kSquare, {must(graph.filled(Shape(2), 3.0f))});
  TestBackend backend;
  const std::string where = "folding Unary{square} of 'here': ";
  backend.after_evaluate = [](auto) -> Result<std::vector<Tensor>> {
    return fail(ErrorCode::kOutOfMemory, "full");
  };
  EXPECT_EQ(message(fold_constants(graph, backend)), where + "full");
  backend.after_evaluate = [](auto) { return std::vector<Tensor>(); };
  EXPECT_EQ(message(fold_constants(graph, backend)),
            where + "evaluating gives 0 results, should give 1");
  backend.after_evaluate = [](auto) { return std::vector<Tensor>(1); };
  EXPECT_EQ(message(fold_constants(graph, backend)),
            where + "evaluating gives f32[0], should give f32[2]");
}

}  // namespace
}  // namespace volta
