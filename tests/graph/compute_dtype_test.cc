#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(SetComputeDtype, RefusesIntegers) {
  EXPECT_THAT(testing::message(set_compute_dtype(small_net(), DType::kI8)),
              ::testing::HasSubstr("cannot compute in i8"));
}

}  // namespace
}  // namespace volta
