// Which products of a graph are tuned.
#include "tuner/matmul_shapes.h"

#include <array>

#include "device/helpers.h"
#include "graph/passes.h"

namespace volta {
namespace {

using test::f32;

// x[rows, 64] times w[64, 96], twice, then a product in batches.
Graph graph_of(std::int64_t rows, DType type = DType::kF32) {
  Graph graph;
  const ValueId x = *graph.input("x", f32(Shape(rows, 64)));
  const ValueId w = *graph.parameter("w", {type, Shape(64, 96)});
  const ValueId v = *graph.parameter("v", {type, Shape(64, 96)});
  const ValueId y = (*graph.add(MatMul{}, std::array{x, w}))[0];
  const ValueId z = (*graph.add(MatMul{}, std::array{x, v}))[0];
  const ValueId p = (*graph.add(Reshape{Shape(1, rows, 96)}, std::array{y}))[0];
  const ValueId q = (*graph.add(Reshape{Shape(1, rows, 96)}, std::array{z}))[0];
  const MatMul batched = {.transpose_b = true, .batched = true};
  EXPECT_TRUE(graph.output("c", (*graph.add(batched, std::array{p, q}))[0]));
  return graph;
}

TEST(MatMulShapes, AreThoseOfFloatsOnceEach) {
  const auto plain = matmul_shapes(graph_of(5), 2);
  ASSERT_EQ(plain.size(), 1u);
  EXPECT_EQ(plain[0],
            (cpu::MatMulShape{
                .b_type = DType::kF32, .packed = false, .threads = 2, .m = 5, .n = 96, .k = 64}));
  EXPECT_TRUE(matmul_shapes(Graph(), 1).empty());
}

TEST(MatMulShapes, AreThoseOfGradientsToo) {
  Graph graph;
  const ValueId x = *graph.input("x", f32(Shape(2, 5, 64)));
  const ValueId w = *graph.parameter("w", f32(Shape(64, 96)));
  const ValueId y = (*graph.add(MatMul{}, std::array{x, w}))[0];
  const ValueId dx = (*graph.add(MatMul{.transpose_b = true}, std::array{y, w}))[0];
  const ValueId dw = (*graph.add(MatMul{.transpose_a = true}, std::array{x, y}))[0];
  EXPECT_TRUE(graph.output("dx", dx));
  EXPECT_TRUE(graph.output("dw", dw));
  const std::vector<cpu::MatMulShape> expected = {
      {.packed = false, .m = 10, .n = 96, .k = 64},
      {.packed = false, .transpose_b = true, .m = 10, .n = 64, .k = 96},
      {.packed = false, .transpose_a = true, .m = 64, .n = 96, .k = 10}};
  EXPECT_EQ(matmul_shapes(graph, 1), expected);
  const auto narrow = set_compute_dtype(graph, DType::kBF16);
  ASSERT_TRUE(narrow) << narrow.error().message();
  std::vector<cpu::MatMulShape> pairs = expected;
  for (cpu::MatMulShape& shape : pairs) shape.a_type = shape.b_type = DType::kBF16;
  EXPECT_EQ(matmul_shapes(*narrow, 1), pairs);
}

TEST(MatMulShapes, KnowHowWeightsArePacked) {
  const auto device = test::cpu(1);
  const auto packed = prepack(graph_of(1, DType::kBF16), *device, {.dtype = DType::kBF16});
  ASSERT_TRUE(packed) << packed.error().message();
  const auto shapes = matmul_shapes(*packed, 1);
  ASSERT_EQ(shapes.size(), 1u);
  EXPECT_TRUE(shapes[0].packed);
  EXPECT_EQ(shapes[0].b_type, DType::kBF16);
  const auto integers = prepack(graph_of(1), *device, {.quant = Quant::kInt8});
  ASSERT_TRUE(integers) << integers.error().message();
  EXPECT_TRUE(matmul_shapes(*integers, 1).empty());
}

}  // namespace
}  // namespace volta
