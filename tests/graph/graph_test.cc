#include "graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "build.h"

namespace volta {
namespace {

using testing::add;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::f32;
using ::testing::HasSubstr;
using testing::message;
using testing::must;

TEST(Graph, KeepsWhatItIsGiven) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 3))));
  const ValueId w = must(graph.parameter("w", f32(Shape(3, 4))));
  const ValueId s = must(graph.state("s", f32(Shape(4))));
  graph.set_scope("layer");
  const ValueId y = add(graph, MatMul{}, {x, w});
  must(graph.output("y", y));

  EXPECT_EQ(graph.scope(), "layer");
  EXPECT_EQ(graph.value(x).kind, ValueKind::kInput);
  EXPECT_EQ(graph.value(w).kind, ValueKind::kParameter);
  EXPECT_EQ(graph.value(s).kind, ValueKind::kState);
  EXPECT_EQ(graph.value(y).kind, ValueKind::kIntermediate);
  EXPECT_EQ(graph.value(y).producer, 0);
  EXPECT_EQ(graph.spec(y), f32(Shape(2, 4)));
  EXPECT_EQ(graph.find("w"), w);
  EXPECT_EQ(graph.find("none"), std::nullopt);
  ASSERT_EQ(graph.nodes().size(), 1u);
  EXPECT_EQ(graph.nodes()[0].label, "layer");
  EXPECT_THAT(graph.nodes()[0].inputs, ElementsAre(x, w));
  EXPECT_THAT(graph.nodes()[0].outputs, ElementsAre(y));
  ASSERT_EQ(graph.outputs().size(), 1u);
  EXPECT_EQ(graph.outputs()[0].value, y);
  EXPECT_TRUE(verify(graph));
}

TEST(Graph, RefusesBadNamesAndSizes) {
  Graph graph;
  must(graph.input("x", f32(Shape(2))));
  EXPECT_THAT(message(graph.input("", f32(Shape(2)))), HasSubstr("no name"));
  EXPECT_THAT(message(graph.state("x", f32(Shape(2)))),
              HasSubstr("state 'x': the graph already has"));
  const auto huge = graph.parameter("w", f32(Shape(std::int64_t{1} << 40, std::int64_t{1} << 40)));
  EXPECT_THAT(message(huge), HasSubstr("parameter 'w'"));
  EXPECT_THAT(message(graph.constant("x", Tensor())), HasSubstr("constant 'x'"));
}

TEST(Graph, RefusesNodesThatCannotBe) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 3))));
  EXPECT_THAT(message(graph.add_one(Unary{}, {ValueId{7}})),
              HasSubstr("input 0 is no value of this graph"));
  EXPECT_THAT(message(graph.add_one(Unary{}, {ValueId{}})), HasSubstr("Unary"));
  graph.set_scope("h.0");
  EXPECT_THAT(message(graph.add_one(MatMul{}, {x, x})), HasSubstr("h.0: "));
  const std::vector<ValueId> target{x};
  EXPECT_THAT(message(graph.add(Fill{}, target)),
              HasSubstr("h.0: Fill: writes its input 0, which is the input 'x'"));
  EXPECT_TRUE(graph.nodes().empty());
}

TEST(Graph, RefusesBadOutputs) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2))));
  const ValueId y = must(graph.input("y", f32(Shape(2))));
  EXPECT_THAT(message(graph.output("", x)), HasSubstr("no name"));
  EXPECT_THAT(message(graph.output("x", ValueId{9})), HasSubstr("'x' is no value"));
  must(graph.output("x", x));
  EXPECT_THAT(message(graph.output("x", y)), HasSubstr("already has an output 'x'"));
  must(graph.output("again", x));  // Under a second name.
}

TEST(Graph, FilledConstantsAreMadeOnce) {
  Graph graph;
  const ValueId a = must(graph.filled(Shape(2, 2), 1.5f));
  EXPECT_EQ(must(graph.filled(Shape(2, 2), 1.5f)), a);
  EXPECT_NE(must(graph.filled(Shape(2, 2), 2.5f)), a);
  EXPECT_NE(must(graph.filled(Shape(4), 1.5f)), a);
  EXPECT_NE(must(graph.filled(Shape(), -0.0f)), must(graph.filled(Shape(), 0.0f)));
  EXPECT_EQ(graph.value(a).name, "filled 1.5 [2, 2]");
  EXPECT_THAT(must(graph.value(a).constant.values<float>()), Each(1.5f));
  EXPECT_TRUE(graph.nodes().empty());
}

TEST(Graph, FilledStepsPastNamesOfOthers) {
  Graph graph;
  must(graph.input("filled 1 []", f32(Shape())));
  const std::array<float, 1> two{2.0f};
  must(graph.constant("filled 1 []'", must(Tensor::from_values<float>(Shape(), two))));
  const ValueId one = must(graph.filled(Shape(), 1.0f));
  EXPECT_EQ(graph.value(one).name, "filled 1 []''");
  EXPECT_THAT(must(graph.value(one).constant.values<float>()), ElementsAre(1.0f));
}

TEST(Graph, LargeFilledValuesAreRepeatedScalars) {
  Graph graph;
  const ValueId large = must(graph.filled(Shape(1 << 10, 1 << 10), 3.0f));
  EXPECT_EQ(testing::ops(graph), "Expand");
  EXPECT_EQ(graph.spec(large), f32(Shape(1 << 10, 1 << 10)));
  EXPECT_FALSE(graph.filled(Shape(-1), 1.0f));
}

TEST(Graph, KindsHaveNames) {
  EXPECT_EQ(kind_name(ValueKind::kInput), "input");
  EXPECT_EQ(kind_name(ValueKind::kParameter), "parameter");
  EXPECT_EQ(kind_name(ValueKind::kState), "state");
  EXPECT_EQ(kind_name(ValueKind::kConstant), "constant");
  EXPECT_EQ(kind_name(ValueKind::kIntermediate), "intermediate");
}

}  // namespace
}  // namespace volta
