#include <gtest/gtest.h>

#include "build.h"
#include "graph/passes.h"
#include "interpreter.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using testing::must;
using testing::ops;
using testing::TestBackend;

// A product with everything that can follow it.
struct Net {
  Graph graph;
  ValueId a, w, bias, residual, product;

  Net() {
    a = must(graph.input("a", f32(Shape(2, 3, 4))));
    w = must(graph.parameter("w", f32(Shape(4, 5))));
    bias = must(graph.parameter("bias", f32(Shape(5))));
    residual = must(graph.input("residual", f32(Shape(2, 3, 5))));
    graph.set_scope("matmul");
    product = add(graph, MatMul{}, {a, w});
    graph.set_scope("after");
  }
  ValueId add_bias(ValueId x) { return add(graph, Binary{}, {x, bias}); }
  ValueId add_residual(ValueId x) { return add(graph, Binary{}, {x, residual}); }
  ValueId activate(ValueId x, UnaryKind kind = UnaryKind::kGelu) {
    return add(graph, Unary{kind}, {x});
  }
  Graph fused(ValueId y, const TestBackend& backend = {}) {
    must(graph.output("y", y));
    const Graph after = must(fuse_epilogues(graph, backend));
    must(verify(after));
    return after;
  }
};

TEST(FuseEpilogues, TakesBiasActivationAndResidual) {
  Net net;
  const Graph after = net.fused(net.add_residual(net.activate(net.add_bias(net.product))));
  EXPECT_EQ(to_text(after),
            "input a: f32[2, 3, 4]\n"
            "parameter w: f32[4, 5]\n"
            "parameter bias: f32[5]\n"
            "input residual: f32[2, 3, 5]\n"
            "%0: f32[2, 3, 5] = MatMul{bias, gelu, residual}(a, w, bias, residual)  # matmul\n"
            "output y = %0: f32[2, 3, 5]\n");
}

TEST(FuseEpilogues, TakesEachPartAlone) {
  {
    Net net;
    const Graph after = net.fused(net.add_bias(net.product));
    EXPECT_EQ(ops(after), "MatMul");
    EXPECT_EQ(std::get<MatMul>(after.nodes()[0].op), MatMul{.has_bias = true});
  }
  const std::pair<UnaryKind, Activation> kinds[] = {
      {UnaryKind::kRelu, Activation::kRelu},
      {UnaryKind::kGelu, Activation::kGelu},
      {UnaryKind::kGeluTanh, Activation::kGeluTanh},
      {UnaryKind::kSilu, Activation::kSilu},
  };
  for (const auto& [kind, activation] : kinds) {
    Net net;
    const Graph after = net.fused(net.activate(net.product, kind));
    EXPECT_EQ(ops(after), "MatMul");
    EXPECT_EQ(std::get<MatMul>(after.nodes()[0].op), MatMul{.activation = activation});
  }
  {
    Net net;
    const Graph after = net.fused(add(net.graph, Binary{}, {net.residual, net.product}));
    EXPECT_EQ(ops(after), "MatMul");
    EXPECT_EQ(std::get<MatMul>(after.nodes()[0].op), MatMul{.has_residual = true});
  }
}

TEST(FuseEpilogues, KeepsTheOrderOfTheEpilogue) {
  {
    Net net;  // A bias after the activation is none.
    EXPECT_EQ(ops(net.fused(net.add_bias(net.activate(net.product)))), "MatMul Binary");
  }
  {
    Net net;  // Nothing comes after the residual.
    const ValueId y = net.activate(net.add_residual(net.product));
    EXPECT_EQ(ops(net.fused(y)), "MatMul Unary");
  }
  {
    Net net;  // One activation only.
    EXPECT_EQ(ops(net.fused(net.activate(net.activate(net.product)))), "MatMul Unary");
  }
  {
    Net net;  // One bias only.
    EXPECT_EQ(ops(net.fused(net.add_bias(net.add_bias(net.product)))), "MatMul Binary");
  }
}

TEST(FuseEpilogues, LeavesWhatIsNoEpilogue) {
  {
    Net net;
    EXPECT_EQ(ops(net.fused(net.activate(net.product, UnaryKind::kTanh))), "MatMul Unary");
  }
  {
    Net net;
    EXPECT_EQ(ops(net.fused(net.activate(net.product, UnaryKind::kNone))), "MatMul Unary");
  }
  {
    Net net;
    const ValueId y = add(net.graph, Binary{BinaryKind::kSub}, {net.product, net.residual});
    EXPECT_EQ(ops(net.fused(y)), "MatMul Binary");
  }
  {
    Net net;  // Repeated along one axis, but no bias.
    const ValueId rows = must(net.graph.input("rows", f32(Shape(3, 5))));
    const ValueId y = add(net.graph, Binary{}, {net.product, rows});
    EXPECT_EQ(ops(net.fused(y)), "MatMul Binary");
  }
  {
    Net net;  // The product is what is repeated.
    const ValueId large = must(net.graph.input("large", f32(Shape(7, 2, 3, 5))));
    const ValueId y = add(net.graph, Binary{}, {large, net.product});
    EXPECT_EQ(ops(net.fused(y)), "MatMul Binary");
  }
  {
    Net net;
    const ValueId b = must(net.graph.input("b", f32(Shape(2, 4, 5))));
    const ValueId y = add(net.graph, MatMul{.batched = true}, {net.a, b});
    EXPECT_EQ(ops(net.fused(net.activate(y))), "MatMul MatMul Unary");
  }
}

TEST(FuseEpilogues, LeavesWhatSomebodyElseNeeds) {
  {
    Net net;
    must(net.graph.output("product", net.product));
    EXPECT_EQ(ops(net.fused(net.activate(net.product))), "MatMul Unary");
  }
  {
    Net net;
    const ValueId y = net.activate(net.product);
    EXPECT_EQ(ops(net.fused(add(net.graph, Binary{BinaryKind::kMul}, {y, net.product}))),
              "MatMul Unary Binary");
  }
  {
    Net net;
    EXPECT_EQ(ops(net.fused(add(net.graph, Binary{}, {net.product, net.product}))),
              "MatMul Binary");
  }
}

TEST(FuseEpilogues, GivesASumOfTwoProductsToOneOfThem) {
  Net net;
  const ValueId other = add(net.graph, MatMul{}, {net.a, net.w});
  const Graph after = net.fused(add(net.graph, Binary{}, {net.product, other}));
  EXPECT_EQ(ops(after), "MatMul MatMul");
  EXPECT_EQ(std::get<MatMul>(after.nodes()[0].op), MatMul{});
  EXPECT_EQ(std::get<MatMul>(after.nodes()[1].op), MatMul{.has_residual = true});
}

TEST(FuseEpilogues, DoesNotCarryAReadOverAWrite) {
  Net net;
  testing::write(net.graph, Fill{}, {net.w});
  const ValueId y = net.add_residual(net.product);
  EXPECT_EQ(ops(net.fused(y)), "MatMul Fill Binary");

  Net unrelated;
  testing::write(unrelated.graph, Fill{}, {unrelated.bias});
  const ValueId z = unrelated.add_residual(unrelated.product);
  EXPECT_EQ(ops(unrelated.fused(z)), "Fill MatMul");
}

TEST(FuseEpilogues, AsksTheBackend) {
  Net net;
  TestBackend backend;
  backend.supported = [](const Op& op, auto) {
    const auto* matmul = std::get_if<MatMul>(&op);
    return matmul == nullptr || matmul->activation == Activation::kNone;
  };
  const Graph after = net.fused(net.activate(net.add_bias(net.product)), backend);
  EXPECT_EQ(ops(after), "MatMul Unary");
  EXPECT_TRUE(std::get<MatMul>(after.nodes()[0].op).has_bias);
}

}  // namespace
}  // namespace volta
