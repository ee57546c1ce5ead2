#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "build.h"
#include "graph/passes.h"

namespace volta {
namespace {

using testing::add;
using testing::f32;
using testing::must;

Graph small_net() {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 4))));
  const ValueId w = must(graph.parameter("w", f32(Shape(4, 4))));
  const ValueId half = must(graph.parameter("half", {DType::kBF16, Shape(4, 4)}));
  const ValueId bias = must(graph.parameter("bias", f32(Shape(4))));
  graph.set_scope("layer");
  const ValueId y = add(graph, MatMul{.has_bias = true}, {x, w, bias});
  must(graph.output("y", add(graph, MatMul{}, {y, half})));
  return graph;
}

TEST(SetComputeDtype, RoundsTheFactorsOfProducts) {
  EXPECT_EQ(to_text(must(set_compute_dtype(small_net(), DType::kBF16))),
            "input x: f32[2, 4]\n"
            "parameter w: f32[4, 4]\n"
            "parameter half: bf16[4, 4]\n"
            "parameter bias: f32[4]\n"
            "%0: bf16[2, 4] = Cast{bf16}(x)  # layer\n"
            "%1: bf16[4, 4] = Cast{bf16}(w)  # layer\n"
            "%2: f32[2, 4] = MatMul{bias}(%0, %1, bias)  # layer\n"
            "%3: bf16[2, 4] = Cast{bf16}(%2)  # layer\n"
            "%4: f32[2, 4] = MatMul(%3, half)  # layer\n"
            "output y = %4: f32[2, 4]\n");
}

TEST(SetComputeDtype, F32ChangesNothing) {
  EXPECT_EQ(to_text(must(set_compute_dtype(small_net(), DType::kF32))), to_text(small_net()));
}

// A lookup with tied output and its training: x = table[ids]; logits = (norm(x) + bias) table^T.
Graph small_training() {
  Graph graph;
  const ValueId ids = must(graph.input("ids", {DType::kI32, Shape(3)}));
  const ValueId table = must(graph.parameter("table", f32(Shape(5, 4))));
  const ValueId weight = must(graph.parameter("weight", f32(Shape(4))));
  const ValueId bias = must(graph.parameter("bias", f32(Shape(4))));
  const ValueId x = add(graph, Embedding{}, {table, ids});
  const ValueId y = add(graph, Norm{NormKind::kRms}, {x, weight});
  const ValueId z = add(graph, Binary{}, {y, bias});
  const ValueId logits = add(graph, MatMul{.transpose_b = true}, {z, table});
  const ValueId losses = add(graph, CrossEntropy{}, {logits, ids});
  const ValueId mean = add(graph, Reduce{ReduceKind::kMean, 0, 1}, {losses});
  const ValueId loss = add(graph, Reshape{Shape(1)}, {mean});
  must(graph.output("loss", loss));
  must(graph.output("logits", logits));
  const std::vector<ValueId> wrt = {table, weight, bias};
  const auto gradients = must(differentiate(graph, loss, wrt));
  const ValueId rate = must(graph.parameter("rate", f32(Shape(3))));
  for (std::size_t i = 0; i < wrt.size(); ++i) {
    testing::write(graph, Sgd{}, {wrt[i], gradients[i], rate, rate});
  }
  return graph;
}

// Activations and their gradients (%4, %15) are bf16; statistics, losses, sums over rows and every
// gradient of a parameter are f32, and the two of the table are added in f32.
TEST(SetComputeDtype, TypesATrainingGraph) {
  const Graph typed =
      must(set_compute_dtype(small_training(), DType::kBF16, Rounding::kActivations));
  must(verify(typed));
  EXPECT_EQ(to_text(typed), R"(input ids: i32[3]
parameter table: f32[5, 4]
parameter weight: f32[4]
parameter bias: f32[4]
parameter rate: f32[3]
constant filled 1 [1]: f32[1]
%0: bf16[3, 4] = Embedding{bf16}(table, ids)
%1: bf16[3, 4], %2: f32[3, 2] = Norm{rms, eps=1e-05}(%0, weight)
%3: bf16[4] = Cast{bf16}(bias)
%4: bf16[3, 4] = Binary{add}(%1, %3)
%5: bf16[5, 4] = Cast{bf16}(table)
%6: bf16[3, 5] = MatMul{transpose_b, bf16}(%4, %5)
%7: f32[3], %8: f32[3] = CrossEntropy(%6, ids)
%9: f32[] = Reduce{mean, begin=0, end=1}(%7)
%10: f32[1] = Reshape{[1]}(%9)
%11: f32[] = Reshape{[]}(filled 1 [1])  # grad
%12: f32[3] = Expand{[3], begin=0, scale=0.33333334}(%11)  # grad
%13: bf16[3, 5] = CrossEntropyGrad(%6, ids, %8, %12)  # grad
%14: bf16[5, 4] = Cast{bf16}(table)  # grad
%15: bf16[3, 4] = MatMul{bf16}(%13, %14)  # grad
%16: f32[5, 4] = MatMul{transpose_a}(%13, %4)  # grad
%17: f32[4] = Reduce{sum, begin=0, end=1}(%15)  # grad
%18: bf16[3, 4], %19: f32[4] = NormGrad{rms}(%0, weight, %2, %15)  # grad
%20: f32[5, 4] = EmbeddingGrad{rows=5}(ids, %18)  # grad
%21: f32[5, 4] = Binary{add}(%16, %20)  # grad
Sgd{momentum=0, weight_decay=0}(table, %21, rate, rate)
Sgd{momentum=0, weight_decay=0}(weight, %19, rate, rate)
Sgd{momentum=0, weight_decay=0}(bias, %17, rate, rate)
%22: f32[3, 5] = Cast{f32}(%6)
output loss = %10: f32[1]
output logits = %22: f32[3, 5]
)");
}

// What is differentiated in 16 bits has the types that the pass would have given it.
TEST(SetComputeDtype, GradientsOfATypedGraph) {
  Graph graph;
  const ValueId x = must(graph.input("x", f32(Shape(2, 4))));
  const ValueId w = must(graph.parameter("w", f32(Shape(4, 4))));
  const ValueId v = must(graph.parameter("v", {DType::kBF16, Shape(4, 4)}));
  const ValueId narrow = add(graph, Cast{DType::kBF16}, {x});
  const ValueId h = add(graph, MatMul{.out = DType::kBF16}, {narrow, w});
  const ValueId y = add(graph, MatMul{.out = DType::kBF16}, {h, v});
  const ValueId loss = add(graph, Reduce{ReduceKind::kSum, 0, 2}, {y});
  const std::vector<ValueId> wrt = {w, v};
  for (const ValueId gradient : must(differentiate(graph, loss, wrt))) {
    EXPECT_EQ(graph.spec(gradient), f32(Shape(4, 4)));
  }
  must(verify(graph));
  EXPECT_EQ(testing::ops(graph), "Cast MatMul MatMul Reduce Expand Cast MatMul MatMul MatMul");
  EXPECT_EQ(graph.spec(graph.nodes()[6].outputs[0]).dtype, DType::kBF16);  // dh.
}

TEST(SetComputeDtype, RefusesIntegers) {
  EXPECT_THAT(testing::message(set_compute_dtype(small_net(), DType::kI8)),
              ::testing::HasSubstr("cannot compute in i8"));
}

}  // namespace
}  // namespace volta
