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

// The mean loss of some logits, and the gradient of the logits.
struct Net {
  Graph graph;
  ValueId logits, targets, loss, lse;

  Net() {
    logits = must(graph.input("logits", f32(Shape(3, 5))));
    targets = must(graph.input("targets", {DType::kI32, Shape(3)}));
    graph.set_scope("loss");
    const auto both = must(graph.add(CrossEntropy{}, std::vector{logits, targets}));
    loss = both[0];
    lse = both[1];
  }
  void differentiate_mean() {
    const ValueId mean = add(graph, Reduce{ReduceKind::kMean, 0, 1}, {loss});
    const auto gradients = must(differentiate(graph, mean, std::vector{logits}));
    must(graph.output("mean", mean));
    must(graph.output("dlogits", gradients[0]));
  }
  Graph fused() const {
    const Graph after = must(fuse_cross_entropy(graph, TestBackend{}));
    must(verify(after));
    return after;
  }
};

TEST(FuseCrossEntropy, ReadsTheLogitsOnce) {
  Net net;
  net.differentiate_mean();
  EXPECT_NE(ops(net.graph).find("CrossEntropy Reduce"), std::string::npos);
  const Graph after = net.fused();
  EXPECT_EQ(ops(after), "Expand CrossEntropyGrad Reduce");
  const Node& node = after.nodes()[1];
  EXPECT_TRUE(std::get<CrossEntropyGrad>(node.op).with_loss);
  EXPECT_EQ(node.label, "loss");
  EXPECT_EQ(after.outputs()[0].value, after.nodes()[2].outputs[0]);
  EXPECT_EQ(after.outputs()[1].value, node.outputs[0]);
}

TEST(FuseCrossEntropy, NotWhereLseIsUsed) {
  Net net;
  net.differentiate_mean();
  must(net.graph.output("lse", net.lse));
  EXPECT_EQ(ops(net.fused()), ops(net.graph));
}

TEST(FuseCrossEntropy, NotWhereTheGradientDependsOnTheLoss) {
  Net net;
  const ValueId squares = add(net.graph, Binary{BinaryKind::kMul}, {net.loss, net.loss});
  const ValueId sum = add(net.graph, Reduce{ReduceKind::kSum, 0, 1}, {squares});
  const auto gradients = must(differentiate(net.graph, sum, std::vector{net.logits}));
  must(net.graph.output("dlogits", gradients[0]));
  EXPECT_EQ(ops(net.fused()), ops(net.graph));
}

TEST(FuseCrossEntropy, NotForOtherTargets) {
  Net net;
  const ValueId others = must(net.graph.input("others", {DType::kI32, Shape(3)}));
  const ValueId upstream = must(net.graph.input("upstream", f32(Shape(3))));
  must(net.graph.output(
      "dlogits", add(net.graph, CrossEntropyGrad{}, {net.logits, others, net.lse, upstream})));
  must(net.graph.output("loss", net.loss));
  EXPECT_EQ(ops(net.fused()), ops(net.graph));
}

TEST(FuseCrossEntropy, NotOverAWrite) {
  Net net;
  const ValueId state = must(net.graph.state("state", f32(Shape(3))));
  testing::write(net.graph, Fill{1.0f}, {state});
  must(net.graph.output(
      "dlogits", add(net.graph, CrossEntropyGrad{}, {net.logits, net.targets, net.lse, state})));
  must(net.graph.output("loss", net.loss));
  EXPECT_EQ(ops(net.fused()), ops(net.graph));
}

TEST(FuseCrossEntropy, NotWithoutTheKernel) {
  Net net;
  net.differentiate_mean();
  struct Without final : TestBackend {
    bool supports(const Op& op, std::span<const TensorSpec> inputs) const override {
      const auto* grad = std::get_if<CrossEntropyGrad>(&op);
      return (grad == nullptr || !grad->with_loss) && TestBackend::supports(op, inputs);
    }
  };
  EXPECT_EQ(ops(must(fuse_cross_entropy(net.graph, Without{}))), ops(net.graph));
}

}  // namespace
}  // namespace volta
