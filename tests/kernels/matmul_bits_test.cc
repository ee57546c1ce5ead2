// MatMul's "same bits" rule: an element of c is one chain of multiply-adds, whatever the number of
// rows, the threads, the layouts of the operands, the blocks, or the kernel that computes it.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "matmul_fixture.h"

namespace volta::test {
namespace {

/// Rows [0, rows) of a case as a case of its own, with the same weight.
MatMulData first_rows(const MatMulCase& whole, const MatMulData& data, const MatMulCase& part) {
  MatMulData made(part);
  std::vector<float> a, residual;
  for (std::int64_t i = 0; i < part.a_shape()[0]; ++i) {
    for (std::int64_t j = 0; j < part.a_shape()[1]; ++j) {
      a.push_back(data.a[static_cast<std::size_t>(i * whole.a_shape()[1] + j)]);
    }
  }
  for (std::size_t i = 0; i < made.residual.size(); ++i) residual.push_back(data.residual[i]);
  made.a = Operand(part.a_shape(), a, part.a_type);
  made.b = data.b;
  made.bias = data.bias;
  made.residual = Operand(part.c_shape(), residual);
  return made;
}

class MatMulBits : public testing::TestWithParam<cpu::Simd> {};
INSTANTIATE_TEST_SUITE_P(EverySimd, MatMulBits, testing::ValuesIn(available_simd()),
                         [](const auto& simd) { return simd_label(simd.param); });

TEST_P(MatMulBits, ARowDoesNotDependOnTheOthers) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const DType b_type : {DType::kF32, DType::kBF16, DType::kF16}) {
        MatMul op;
        op.transpose_a = transpose_a;
        op.transpose_b = transpose_b;
        op.has_bias = op.has_residual = true;
        op.activation = Activation::kGelu;
        const MatMulCase whole{70, 450, 130, op, DType::kF32, b_type};
        MatMulData data(whole);
        const std::vector<float> together = run_matmul(whole, data, GetParam(), 2);
        for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15, 29, 64}) {
          MatMulCase part = whole;
          part.m = rows;
          MatMulData rows_only = first_rows(whole, data, part);
          const std::vector<float> alone = run_matmul(part, rows_only, GetParam(), 1);
          EXPECT_TRUE(same_bits(alone, std::span(together).first(alone.size())))
              << part.name() << " of " << whole.m;
        }
      }
    }
  }
}

// Products of bf16 have kernels of their own for few rows. Sums of tiny numbers are subnormal,
// which AMX counts as zero.
TEST_P(MatMulBits, ARowOfBf16DoesNotDependOnTheOthers) {
  ThreadPool pool = make_pool(2);
  for (const float scale : {1.0f, 0x1p-62f, 0x1p-66f}) {
    for (const std::int64_t k : {4, 130, 480}) {
      for (const bool packed : {false, true}) {
        const MatMulCase whole{40, k, 300, {}, DType::kBF16, DType::kBF16};
        MatMulData data(whole);
        const auto scaled = [&](const Operand& x, const Shape& shape) {
          std::vector<float> values = x.values();
          for (float& value : values) value *= scale;
          return Operand(shape, values, DType::kBF16);
        };
        data.a = scaled(data.a, whole.a_shape());
        data.b = scaled(data.b, whole.b_shape());
        if (packed) data.pack(whole, GetParam(), pool);
        const std::vector<float> together = run_matmul(whole, data, GetParam(), pool);
        for (const std::int64_t rows : {1, 2, 3, 4, 5, 8, 16, 17, 33}) {
          MatMulCase part = whole;
          part.m = rows;
          MatMulData rows_only = first_rows(whole, data, part);
          if (packed) rows_only.pack(part, GetParam(), pool);
          const std::vector<float> alone = run_matmul(part, rows_only, GetParam(), pool);
          EXPECT_TRUE(same_bits(alone, std::span(together).first(alone.size())))
              << part.name() << " of " << whole.m << ", times " << scale;
        }
      }
    }
  }
}

TEST_P(MatMulBits, ManyRowsEqualOne) {
  const MatMulCase whole{768, 128, 384};
  MatMulData data(whole);
  const std::vector<float> together = run_matmul(whole, data, GetParam(), 2);
  MatMulCase one = whole;
  one.m = 1;
  MatMulData first = first_rows(whole, data, one);
  const std::vector<float> alone = run_matmul(one, first, GetParam(), 1);
  EXPECT_TRUE(same_bits(alone, std::span(together).first(alone.size())));
}

TEST_P(MatMulBits, ThreadsDoNotMatter) {
  std::vector<MatMulCase> cases = {{96, 512, 384}, {768, 128, 65}, {1, 700, 3000},
                                   {5, 400, 1000}, {200, 200, 16}, {33, 1000, 90}};
  MatMul batched;
  batched.batched = batched.transpose_b = true;
  cases.push_back({60, 70, 80, batched, DType::kF32, DType::kF32, 5});
  cases.push_back({200, 300, 80, batched, DType::kF32, DType::kF32, 2});
  for (const bool transpose : {false, true}) {
    for (MatMulCase c : cases) {
      c.op.transpose_a = transpose;
      MatMulData data(c);
      const std::vector<float> alone = run_matmul(c, data, GetParam(), 1);
      for (const int threads : {2, 3, 8}) {
        EXPECT_TRUE(same_bits(alone, run_matmul(c, data, GetParam(), threads)))
            << c.name() << " on " << threads;
      }
    }
  }
}

TEST_P(MatMulBits, FusedEqualsSeparateAddition) {
  MatMul fused;
  fused.has_bias = fused.has_residual = true;
  MatMulCase c{19, 500, 37, fused};
  MatMulData data(c);
  const std::vector<float> together = run_matmul(c, data, GetParam(), 1);
  c.op = MatMul{};
  std::vector<float> separate = run_matmul(c, data, GetParam(), 1);
  for (std::size_t i = 0; i < separate.size(); ++i) {
    separate[i] = separate[i] + data.bias[i % 37] + data.residual[i];
  }
  EXPECT_TRUE(same_bits(together, separate));
}

/// Any case, small enough for the slow reference, around the sizes where paths change.
MatMulCase any_case() {
  MatMulCase c;
  c.m = *rc::gen::inRange<std::int64_t>(1, 34);
  c.n = *rc::gen::inRange<std::int64_t>(1, 140);
  c.k = *rc::gen::element<std::int64_t>(1, 2, 3, 5, 16, 31, 100, 384, 385, 800);
  const auto any_type = [] {
    return *rc::gen::element(DType::kF32, DType::kF32, DType::kBF16, DType::kF16);
  };
  c.a_type = any_type();
  c.b_type = any_type();
  c.op.transpose_a = *rc::gen::arbitrary<bool>();
  c.op.transpose_b = *rc::gen::arbitrary<bool>();
  c.op.batched = *rc::gen::element(false, false, true);
  if (c.op.batched) c.batch = *rc::gen::inRange<std::int64_t>(1, 4);
  return c;
}

TEST_P(MatMulBits, AnyProductIsThePromisedChain) {
  ThreadPool pool = make_pool(3);
  EXPECT_TRUE(rc::check([&] {
    const MatMulCase c = any_case();
    MatMulData data(c);
    RC_LOG() << c.name();
    const std::vector<float> got = run_matmul(c, data, GetParam(), pool);
    switch (cpu::multiplier(c.a_type, c.b_type, GetParam())) {
      case cpu::Multiplier::kFma:
        RC_ASSERT(same_bits(got, chained(c, data, GetParam())));
        break;
      case cpu::Multiplier::kBf16Dot:
        expect_within(got, matmul_bounds(c, data));  // The processor's own order of sums.
        break;
      case cpu::Multiplier::kAmx:
        RC_ASSERT(same_bits(got, tiled(c, data)));
        break;
    }
  }));
}

}  // namespace
}  // namespace volta::test
