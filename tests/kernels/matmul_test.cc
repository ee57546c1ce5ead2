// MatMul on the CPU: right against the plain C++ reference at every remainder, layout, type and
// epilogue, on every instruction set; NaN, infinities and empty operands.
#include <gtest/gtest.h>

#include "matmul_fixture.h"

namespace volta::test {
namespace {

constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kGelu,
                                       Activation::kGeluTanh, Activation::kSilu};

void expect_right(const MatMulCase& c, ThreadPool& pool) {
  MatMulData data(c);
  const MatMulBounds expected = matmul_bounds(c, data);
  for (const cpu::Simd simd : available_simd()) {
    SCOPED_TRACE(c.name() + " " + cpu::simd_name(simd));
    expect_within(run_matmul(c, data, simd, pool), expected);
  }
}

/// The four combinations of transposes.
std::vector<MatMul> layouts() {
  std::vector<MatMul> ops(4);
  for (std::size_t i = 0; i < 4; ++i) {
    ops[i].transpose_a = (i & 1) != 0;
    ops[i].transpose_b = (i & 2) != 0;
  }
  return ops;
}

TEST(MatMulScalar, HandComputed) {
  // [1 2 3; 4 5 6] [1 4; 2 5; 3 6] = [14 32; 32 77], from every layout.
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6}, columns = {1, 4, 2, 5, 3, 6};
  for (const MatMul& op : layouts()) {
    Operand a(op.transpose_a ? Shape(3, 2) : Shape(2, 3), op.transpose_a ? columns : rows);
    Operand b(op.transpose_b ? Shape(2, 3) : Shape(3, 2), op.transpose_b ? rows : columns);
    Operand c(Shape(2, 2));
    const std::vector<View> inputs = {a.view(), b.view()}, outputs = {c.view()};
    matmul_scalar(op, {inputs, outputs, {}});
    EXPECT_EQ(c.values(), (std::vector<float>{14, 32, 32, 77}));
  }
}

TEST(MatMulScalar, HandComputedEpilogue) {
  Operand a(Shape(1, 1), {2}), b(Shape(1, 2), {1, -1}), bias(Shape(2), {0.5f, -0.5f});
  Operand residual(Shape(1, 2), {10, 20}), c(Shape(1, 2));
  const std::vector<View> inputs = {a.view(), b.view(), bias.view(), residual.view()};
  const std::vector<View> outputs = {c.view()};
  MatMul op;
  op.has_bias = op.has_residual = true;
  const double expected[][2] = {{12.5, 17.5},             // 2.5, -2.5
                                {12.5, 20.0},             // Relu
                                {12.484476, 19.984476},   // x Phi(x): Phi(2.5) = 0.9937903
                                {12.484916, 19.984916},   // Its tanh approximation
                                {12.310354, 19.810354}};  // x / (1 + e^-x)
  for (std::size_t i = 0; i < 5; ++i) {
    op.activation = kActivations[i];
    matmul_scalar(op, {inputs, outputs, {}});
    EXPECT_NEAR(c[0], expected[i][0], 4e-6);
    EXPECT_NEAR(c[1], expected[i][1], 4e-6);
  }
}

TEST(MatMul, RightAtEveryRemainder) {
  ThreadPool pool = make_pool(2);
  for (const MatMul& op : layouts()) {
    for (std::int64_t s = 1; s <= 33; ++s) {
      expect_right({s, 9, 17, op}, pool);
      expect_right({5, 7, s, op}, pool);
      expect_right({3, s, 35, op}, pool);
    }
    for (const std::int64_t s : {1, 2, 15, 16, 31}) expect_right({s, s, s, op}, pool);
  }
}

TEST(MatMul, RightAtPrimesAndBlockSizes) {
  ThreadPool pool = make_pool(2);
  for (const MatMul& op : layouts()) {
    expect_right({37, 41, 43, op}, pool);
    expect_right({29, 131, 97, op}, pool);
    for (const std::int64_t k : {1, 127, 128, 256, 384, 385, 512, 769, 1024}) {
      expect_right({6, k, 33, op}, pool);
    }
    expect_right({15, 400, 701, op}, pool);  // More columns than one slice of packed panels.
  }
}

// The parity runs that docs/governance/tiers.md asks of every kernel: cubes, and sizes beside them
// that no vector and no block divides.
class MatMulParity : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(MatMulParity, CubeInEveryLayout) {
  ThreadPool pool = make_pool(2);
  const std::int64_t size = GetParam();
  for (const MatMul& op : layouts()) {
    if (size == 512 && op.transpose_a != op.transpose_b) continue;  // The reference is slow.
    expect_right({size, size, size, op}, pool);
  }
}

TEST_P(MatMulParity, MisalignedSizes) {
  ThreadPool pool = make_pool(2);
  const std::int64_t size = GetParam();
  expect_right({size - 1, size + 1, 67, {}}, pool);
  expect_right({65, size - 1, size + 1, {}}, pool);
  expect_right({size + 1, 65, size - 1, {}}, pool);
}

INSTANTIATE_TEST_SUITE_P(Cubes, MatMulParity, ::testing::Values(128, 256, 512),
                         ::testing::PrintToStringParamName());

// The same in 16 bits, of both operands and of b alone.
class MatMulTypeParity : public ::testing::TestWithParam<std::tuple<std::int64_t, DType>> {};

TEST_P(MatMulTypeParity, CubeAndMisalignedSizes) {
  ThreadPool pool = make_pool(2);
  const auto [size, type] = GetParam();
  for (const DType a_type : {type, DType::kF32}) {
    if (size == 512 && a_type != type) continue;  // The reference is slow.
    expect_right({size, size, size, {}, a_type, type}, pool);
    expect_right({size - 1, size + 1, 67, {}, a_type, type}, pool);
    expect_right({65, size - 1, size + 1, {.transpose_b = true}, a_type, type}, pool);
    expect_right({size + 1, 65, size - 1, {.transpose_a = true}, a_type, type}, pool);
  }
}

INSTANTIATE_TEST_SUITE_P(Cubes, MatMulTypeParity,
                         ::testing::Combine(::testing::Values(128, 256, 512),
                                            ::testing::Values(DType::kBF16, DType::kF16)),
                         [](const auto& tested) {
                           return std::to_string(std::get<0>(tested.param)) + "_" +
                                  std::string(dtype_name(std::get<1>(tested.param)));
                         });

TEST(MatMul, RightForEveryEpilogue) {
  ThreadPool pool = make_pool(2);
  for (const Activation activation : kActivations) {
    for (int i = 0; i < 4; ++i) {
      MatMul op;
      op.activation = activation;
      op.has_bias = (i & 1) != 0;
      op.has_residual = (i & 2) != 0;
      expect_right({1, 20, 65, op}, pool);
      expect_right({19, 400, 65, op}, pool);  // Two K blocks: only the last one finishes.
      op.transpose_b = true;
      expect_right({19, 20, 31, op}, pool);
    }
  }
}

TEST(MatMul, RightForEveryMixOfTypes) {
  ThreadPool pool = make_pool(2);
  for (const DType a_type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType b_type : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const MatMul& op : layouts()) {
        for (const std::int64_t m : {1, 3, 4, 5, 16, 31}) {
          expect_right({m, 43, 50, op, a_type, b_type}, pool);
        }
        expect_right({2, 450, 128, op, a_type, b_type}, pool);
      }
    }
  }
}

TEST(MatMul, RightInBatches) {
  ThreadPool pool = make_pool(2);
  for (MatMul op : layouts()) {
    op.batched = true;
    for (const std::int64_t batch : {1, 2, 7}) {
      expect_right({13, 17, 19, op, DType::kF32, DType::kF32, batch}, pool);
      expect_right({13, 17, 19, op, DType::kBF16, DType::kF16, batch}, pool);
      expect_right({64, 96, 80, op, DType::kF32, DType::kF32, batch}, pool);
    }
  }
}

TEST(MatMul, FlattensLeadingAxes) {
  ThreadPool pool = make_pool(1);
  const cpu::Context context{cpu::best_simd(), &pool, nullptr};
  const std::vector<float> x = random_values(2 * 3 * 4, 1), y = random_values(2 * 3 * 5, 2);
  const std::vector<float> w = random_values(4 * 5, 3);
  Operand flat_x(Shape(6, 4), x), deep_x(Shape(2, 3, 4), x);
  Operand flat_y(Shape(6, 5), y), deep_y(Shape(2, 3, 5), y), weight(Shape(4, 5), w);
  Operand flat(Shape(6, 5)), deep(Shape(2, 3, 5));
  call(MatMul{}, {&flat_x, &weight}, {&flat}, context);
  call(MatMul{}, {&deep_x, &weight}, {&deep}, context);
  EXPECT_EQ(flat.values(), deep.values());
  // X^T dY over all tokens.
  MatMul op;
  op.transpose_a = true;
  Operand flat_dw(Shape(4, 5)), deep_dw(Shape(4, 5));
  call(op, {&flat_x, &flat_y}, {&flat_dw}, context);
  call(op, {&deep_x, &deep_y}, {&deep_dw}, context);
  EXPECT_EQ(flat_dw.values(), deep_dw.values());
}

// NaN in one row of a or one column of b reaches that row or column and no other.
TEST(MatMul, KeepsNaNInItsRowAndColumn) {
  ThreadPool pool = make_pool(2);
  for (const MatMul& op : layouts()) {
    for (const std::int64_t m : {3, 20}) {
      const MatMulCase c{m, 21, 37, op};
      const std::int64_t row = m - 1, column = c.n - 1, step = c.k - 1;
      MatMulData data(c);
      std::vector<float> a = data.a.values(), b = data.b.values();
      a[static_cast<std::size_t>(op.transpose_a ? step * m + row : row * c.k + step)] = kNaN;
      b[static_cast<std::size_t>(op.transpose_b ? column * c.k : column)] = kNaN;
      data.a = Operand(c.a_shape(), a);
      data.b = Operand(c.b_shape(), b);
      for (const cpu::Simd simd : available_simd()) {
        SCOPED_TRACE(c.name() + " " + cpu::simd_name(simd));
        const std::vector<float> result = run_matmul(c, data, simd, pool);
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < c.n; ++j) {
            EXPECT_EQ(std::isnan(result[static_cast<std::size_t>(i * c.n + j)]),
                      i == row || j == column)
                << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST(MatMul, FollowsTheArithmeticOfInfinity) {
  ThreadPool pool = make_pool(1);
  const MatMulCase c{1, 2, 3};
  MatMulData data(c);
  data.a = Operand(c.a_shape(), {kInfinity, 1.0f});
  data.b = Operand(c.b_shape(), {1.0f, 0.0f, -1.0f, 0.0f, 0.0f, 0.0f});
  for (const cpu::Simd simd : available_simd()) {
    const std::vector<float> result = run_matmul(c, data, simd, pool);
    EXPECT_EQ(result[0], kInfinity);
    EXPECT_TRUE(std::isnan(result[1]));  // inf * 0
    EXPECT_EQ(result[2], -kInfinity);
  }
}

TEST(MatMul, EmptyOperands) {
  ThreadPool pool = make_pool(2);
  MatMul op;
  op.has_bias = true;
  for (const cpu::Simd simd : available_simd()) {
    for (const MatMulCase& c : {MatMulCase{0, 3, 4, op}, MatMulCase{3, 4, 0, op}}) {
      MatMulData data(c);
      EXPECT_TRUE(run_matmul(c, data, simd, pool).empty());
    }
    const MatMulCase sum_of_nothing{2, 0, 5, op};
    MatMulData data(sum_of_nothing);
    const std::vector<float> result = run_matmul(sum_of_nothing, data, simd, pool);
    for (std::size_t i = 0; i < result.size(); ++i) EXPECT_EQ(result[i], data.bias[i % 5]);
  }
}

}  // namespace
}  // namespace volta::test
