#include "graph/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "build.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using testing::message;
using testing::must;

Graph two_nodes() {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(4))));
  graph.set_scope("first");
  const ValueId y = add(graph, Unary{UnaryKind::kTanh}, {x});
  graph.set_scope("second");
  must(graph.output("z", add(graph, Unary{UnaryKind::kRelu}, {y})));
  return graph;
}

TEST(Rewriter, CopiesNodesAndReplacesThem) {
  const Graph graph = two_nodes();
  Rewriter rewriter = must(Rewriter::begin(graph));
  must(rewriter.copy(graph.nodes()[0]));
  const std::vector<ValueId> inputs{must(rewriter.at(graph.nodes()[1].inputs[0]))};
  must(rewriter.replace_node(graph.nodes()[1], Unary{UnaryKind::kSquare}, inputs));
  EXPECT_EQ(to_text(must(rewriter.finish())),
            "input x: f32[4]\n"
            "%0: f32[4] = Unary{tanh}(x)  # first\n"
            "%1: f32[4] = Unary{square}(%0)  # second\n"
            "output z = %1: f32[4]\n");
}

TEST(Rewriter, FindsReadersOfADroppedNode) {
  const Graph graph = two_nodes();
  Rewriter rewriter = must(Rewriter::begin(graph));
  const auto copied = rewriter.copy(graph.nodes()[1]);
  EXPECT_THAT(message(copied), ::testing::HasSubstr("reads value 1 of a node that it has dropped"));
  EXPECT_EQ(copied.error().code(), ErrorCode::kInternal);
  EXPECT_FALSE(rewriter.finish());
}

}  // namespace
}  // namespace volta
