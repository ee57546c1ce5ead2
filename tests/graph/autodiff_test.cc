#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "build.h"
#include "interpreter.h"

namespace volta {
namespace {

using testing::add;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::f32;
using ::testing::HasSubstr;
using testing::message;
using testing::must;
using testing::ops;
using ::testing::StartsWith;

ValueId sum_all(Graph& graph, ValueId x) {
  return add(graph, Reduce{ReduceKind::kSum, 0, graph.spec(x).shape.rank()}, {x});
}

std::vector<ValueId> grads(Graph& graph, ValueId loss, const std::vector<ValueId>& wrt) {
  auto result = must(differentiate(graph, loss, wrt));
  must(verify(graph));
  return result;
}

TEST(Differentiate, AppendsTheBackwardPassInReverse) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 3))));
  const ValueId w = must(graph.parameter("w", f32(Shape(3, 4))));
  graph.set_scope("layer");
  const ValueId y = add(graph, Unary{UnaryKind::kTanh}, {add(graph, MatMul{}, {x, w})});
  graph.set_scope("");
  const ValueId loss = sum_all(graph, y);
  graph.set_scope("after");
  must(graph.output("dw", grads(graph, loss, {w})[0]));
  EXPECT_EQ(graph.scope(), "after");
  EXPECT_EQ(to_text(graph),
            "input x: f32[2, 3]\n"
            "parameter w: f32[3, 4]\n"
            "constant filled 1 []: f32[]\n"
            "%0: f32[2, 4] = MatMul(x, w)  # layer\n"
            "%1: f32[2, 4] = Unary{tanh}(%0)  # layer\n"
            "%2: f32[] = Reduce{sum, begin=0, end=2}(%1)\n"
            "%3: f32[2, 4] = Expand{[2, 4], begin=0}(filled 1 [])  # grad\n"
            "%4: f32[2, 4] = UnaryGrad{tanh}(%0, %3)  # layer.grad\n"
            "%5: f32[3, 4] = MatMul{transpose_a}(x, %4)  # layer.grad\n"  // No gradient of x.
            "output dw = %5: f32[3, 4]\n");
}

TEST(Differentiate, SumsSeveralUsesInAFixedOrder) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(3))));
  // f = sum(x * x + 2 x), df/dx = 2 x + 2.
  const ValueId square = add(graph, Binary{BinaryKind::kMul}, {x, x});
  const ValueId twice = add(graph, Unary{UnaryKind::kScale, 2.0f}, {x});
  const ValueId loss = sum_all(graph, add(graph, Binary{}, {square, twice}));
  Graph copy = graph;
  const auto dx = grads(graph, loss, {x, x});
  EXPECT_EQ(dx[0], dx[1]);
  must(graph.output("dx", dx[0]));
  testing::Arrays bindings{{"x", {f32(Shape(3)), {1.0f, -0.5f, 3.0f}}}};
  EXPECT_THAT(testing::run_graph(graph, bindings)["dx"].data, ElementsAre(4.0f, 1.0f, 8.0f));
  EXPECT_EQ(ops(graph), "Binary Unary Binary Reduce Expand Unary Binary Binary Binary Binary");

  must(copy.output("dx", grads(copy, loss, {x})[0]));
  EXPECT_EQ(to_text(copy), to_text(graph));
}

TEST(Differentiate, WhatMakesAnIntermediateThatIsAskedForMayReadWhatIsWritten) {
  Graph graph;
  const ValueId s = must(graph.state("s", f32(Shape(3))));
  const ValueId h = add(graph, Unary{UnaryKind::kScale, 2.0f}, {s});
  const ValueId loss = sum_all(graph, add(graph, Unary{UnaryKind::kSquare}, {h}));
  testing::write(graph, Fill{0.0f}, {s});
  must(graph.output("dh", grads(graph, loss, {h})[0]));
  testing::Arrays bindings{{"s", {f32(Shape(3)), {1.0f, 2.0f, -1.0f}}}};
  EXPECT_THAT(testing::run_graph(graph, bindings)["dh"].data, ElementsAre(4.0f, 8.0f, -4.0f));
}

TEST(Differentiate, GradientsThatAreOneValueMayHaveTwoNames) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2))));
  const ValueId y = must(graph.input("y", f32(Shape(2))));
  const ValueId loss = sum_all(graph, add(graph, Binary{BinaryKind::kAdd}, {x, y}));
  const auto made = grads(graph, loss, {x, y});
  EXPECT_EQ(made[0], made[1]);
  must(graph.output("dx", made[0]));
  must(graph.output("dy", made[1]));
  testing::Arrays bindings{{"x", {f32(Shape(2)), {1, 2}}}, {"y", {f32(Shape(2)), {3, 4}}}};
  auto outputs = testing::run_graph(graph, bindings);
  EXPECT_THAT(outputs["dx"].data, ElementsAre(1.0f, 1.0f));
  EXPECT_THAT(outputs["dy"].data, ElementsAre(1.0f, 1.0f));
}

TEST(Differentiate, GoesThroughIntermediatesThatAreAskedFor) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(3))));
  const ValueId y = add(graph, Unary{UnaryKind::kScale, 3.0f}, {x});
  const ValueId loss = sum_all(graph, add(graph, Unary{UnaryKind::kSquare}, {y}));
  const auto made = grads(graph, loss, {y, x, loss});
  must(graph.output("dy", made[0]));
  must(graph.output("dx", made[1]));
  must(graph.output("dloss", made[2]));
  testing::Arrays bindings{{"x", {f32(Shape(3)), {1.0f, 2.0f, -1.0f}}}};
  auto outputs = testing::run_graph(graph, bindings);
  for (std::size_t i = 0; i < 3; ++i) {
    const float value = bindings["x"].data[i];
    EXPECT_NEAR(outputs["dy"].data[i], 6 * value, 1e-3);
    EXPECT_NEAR(outputs["dx"].data[i], 18 * value, 3e-3);
  }
  EXPECT_THAT(outputs["dloss"].data, ElementsAre(1.0f));
}

TEST(Differentiate, GivesZerosForWhatTheLossDoesNotDependOn) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(3))));
  const ValueId unused = must(graph.parameter("unused", {DType::kBF16, Shape(2, 2)}));
  const ValueId dead = add(graph, Unary{UnaryKind::kTanh}, {x});  // Depends on x, is not needed.
  const ValueId loss = sum_all(graph, x);
  const auto made = grads(graph, loss, {unused, dead});
  EXPECT_EQ(graph.spec(made[0]), f32(Shape(2, 2)));
  EXPECT_THAT(must(graph.value(made[0]).constant.values<float>()), Each(0.0f));
  EXPECT_THAT(must(graph.value(made[1]).constant.values<float>()), Each(0.0f));
  EXPECT_EQ(ops(graph), "Unary Reduce");
}

TEST(Differentiate, OfALossWithOneAxisWorks) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(1))));
  const ValueId loss = add(graph, Unary{UnaryKind::kScale, 3.0f}, {x});
  EXPECT_EQ(graph.spec(grads(graph, loss, {x})[0]), f32(Shape(1)));
  EXPECT_TRUE(grads(graph, loss, {}).empty());
}

class DifferentiateError : public ::testing::Test {
 protected:
  // The message; the graph must be as it was.
  std::string error(ValueId loss, const std::vector<ValueId>& wrt) {
    const std::string before = to_text(graph_);
    const auto result = differentiate(graph_, loss, wrt);
    EXPECT_EQ(to_text(graph_), before);
    return message(result);
  }
  Graph graph_;
  ValueId x_ = must(graph_.input("x", f32(Shape(3, 4))));
  ValueId ids_ = must(graph_.input("ids", {DType::kI32, Shape(2)}));
};

TEST_F(DifferentiateError, BadArguments) {
  const ValueId loss = sum_all(graph_, x_);
  const ValueId scalar = must(graph_.input("scalar", f32(Shape())));
  const ValueId index = add(graph_, Argmax{}, {add(graph_, Reshape{Shape(1, 12)}, {x_})});
  EXPECT_THAT(error(ValueId{99}, {x_}), HasSubstr("the loss is no value"));
  EXPECT_THAT(error(scalar, {x_}), HasSubstr("the loss 'scalar' is a given input"));
  EXPECT_THAT(error(index, {x_}), HasSubstr("the loss is i32[1]"));
  const ValueId many = add(graph_, Unary{}, {x_});
  EXPECT_THAT(error(many, {x_}), HasSubstr("the loss is f32[3, 4]; it must be f32 with one"));
  EXPECT_THAT(error(loss, {x_, ValueId{99}}), HasSubstr("wrt[1] is no value"));
  EXPECT_THAT(error(loss, {x_, ids_}), HasSubstr("wrt[1] 'ids' is i32[2]"));
}

TEST_F(DifferentiateError, OpsWithoutAGradientAreNamed) {
  graph_.set_scope("top");
  const ValueId largest = add(graph_, Reduce{ReduceKind::kMax, 0, 2}, {x_});
  EXPECT_THAT(error(largest, {x_}), StartsWith("gradient of top Reduce: "));
  graph_.set_scope("");
  const ValueId again = add(graph_, Reduce{ReduceKind::kMax, 0, 2}, {x_});
  EXPECT_THAT(error(again, {x_}), StartsWith("gradient of Reduce: "));
}

TEST_F(DifferentiateError, IndicesMadeFromWrtAreNoSilentZeros) {
  const ValueId ids = add(graph_, Argmax{}, {x_});
  const ValueId loss = sum_all(graph_, add(graph_, Embedding{}, {x_, ids}));
  EXPECT_THAT(error(loss, {x_}),
              StartsWith("gradient of Embedding: no gradient flows to its input 1, i32[3]"));
}

TEST_F(DifferentiateError, WrittenValuesAreRefused) {
  const ValueId w = must(graph_.parameter("w", f32(Shape(3, 4))));
  graph_.set_scope("update");
  testing::write(graph_, Accumulate{}, {w, x_});
  graph_.set_scope("product");
  const ValueId loss = sum_all(graph_, add(graph_, Binary{BinaryKind::kMul}, {x_, w}));
  EXPECT_THAT(error(loss, {x_}),
              StartsWith("cannot differentiate product Binary: it reads 'w', which update "
                         "Accumulate writes"));
}

TEST_F(DifferentiateError, WritesElsewhereDoNotMatter) {
  const ValueId total = must(graph_.state("total", f32(Shape())));
  const ValueId loss = sum_all(graph_, x_);
  testing::write(graph_, Accumulate{}, {total, loss});
  EXPECT_TRUE(differentiate(graph_, loss, std::vector<ValueId>{x_}));
}

}  // namespace
}  // namespace volta
