// The matrix product with a b of small integers: the sums that its comment promises, bit for bit,
// on every instruction set, with VNNI and without; and how far they are from the exact product.
#include "kernels/cpu/matmul_quant.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/cpu/quant.h"
#include "quant_fixture.h"

namespace volta::test {
namespace {

/// What the kernel promises, without an epilogue.
std::vector<float> promised(const QuantCase& c, const std::vector<float>& a, Weight& rows,
                            bool fused) {
  const std::int64_t blocks = rows.encoding.blocks(c.k);
  std::int64_t a_block = c.k % 128 == 0 ? 128 : c.k % 64 == 0 ? 64 : 32;
  if (c.quant == Quant::kInt8 || a_block % c.block != 0) a_block = c.block;
  const View view = rows.view();
  std::vector<float> all;
  for (std::int64_t i = 0; i < c.m; ++i) {
    std::vector<float> row(static_cast<std::size_t>(blocks * c.block));
    std::copy_n(a.begin() + i * c.k, c.k, row.begin());
    for (std::int64_t j = 0; j < c.n; ++j) {
      float total = 0;
      WeightBlock block;
      // Steps [begin, begin + count) with integers of a: b's scale times the integer sum.
      const auto scaled_sum = [&](std::int64_t begin, std::int64_t count, const int* q) {
        cpu::get_block(view.as<const std::uint8_t>(), rows.encoding, blocks, j, begin / c.block,
                       block);
        int sum = 0;
        for (std::int64_t k = 0; k < count; ++k) {
          sum += block.q[static_cast<std::size_t>((begin + k) % c.block)] * q[k];
        }
        return std::pair(static_cast<float>(sum), f32_from_f16(block.scale));
      };
      for (std::int64_t begin = 0; begin < blocks * c.block; begin += a_block) {
        const auto x = round_block(std::span(row).subspan(static_cast<std::size_t>(begin),
                                                          static_cast<std::size_t>(a_block)),
                                   fused);
        float part = 0;
        for (std::int64_t k = 0; k < a_block; k += c.block) {
          const auto [sum, scale] = scaled_sum(begin + k, c.block, x.whole.q.data() + k);
          part = multiply_add(fused, sum, scale, part);
        }
        total = multiply_add(fused, part, x.whole.scale, total);
        for (std::size_t r = 0; r < x.rests.size(); ++r) {
          if (!x.rests[r]) continue;
          const auto [sum, scale] =
              scaled_sum(begin + static_cast<std::int64_t>(r) * 32, 32, x.rests[r]->q.data());
          total = multiply_add(fused, sum * scale, x.rests[r]->scale, total);
        }
      }
      all.push_back(total);
    }
  }
  return all;
}

class MatMulQuant : public testing::TestWithParam<cpu::Simd> {
 protected:
  ThreadPool pool_ = make_pool(2);
};
INSTANTIATE_TEST_SUITE_P(EverySimd, MatMulQuant, testing::ValuesIn(available_simd()),
                         [](const auto& simd) { return simd_label(simd.param); });

TEST_P(MatMulQuant, GivesThePromisedSums) {
  for (const Quant quant : {Quant::kInt8, Quant::kInt4}) {
    for (const auto& [m, k, n, block] : {std::tuple{1, 1, 1, 32},
                                         {1, 256, 200, 128},
                                         {1, 70, 33, 64},
                                         {2, 96, 40, 32},
                                         {3, 200, 130, 64},
                                         {5, 33, 17, 32},
                                         {6, 128, 64, 128},
                                         {7, 320, 100, 64},
                                         {19, 64, 300, 32},
                                         {3, 300, 40, 256},
                                         {2, 100, 40, 96},
                                         {26, 130, 65, 128},
                                         {40, 300, 70, 128},
                                         {70, 288, 33, 32}}) {
      for (const bool transposed : {false, true}) {
        const QuantCase c{m, k, n, quant, block, transposed};
        SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n) +
                     " by " + std::to_string(block) + (transposed ? " t" : "") +
                     (quant == Quant::kInt4 ? " int4" : " int8"));
        const auto a = spiky_values(m, k);
        Operand b(b_shape(c), random_values(static_cast<std::size_t>(k * n), 2));
        Weight rows = encode(b.view(), in_rows(c), pool_);
        const Encoding panels_of =
            cpu::panel_encoding(DType::kF32, transposed, GetParam(), rows.encoding);
        Weight panels = encode(b.view(), panels_of, pool_);
        // Both layouts hold the same integers, and one becomes the other.
        EXPECT_EQ(decode(rows, pool_), decode(panels, pool_));
        Weight moved = encode(rows.view(), panels_of, pool_);
        EXPECT_EQ(decode(moved, pool_), decode(panels, pool_));
        const auto expected = promised(c, a, rows, GetParam() != cpu::Simd::kSse4);
        const auto got = multiply(c, a, panels, GetParam(), pool_);
        EXPECT_TRUE(same_bits(got, expected));
      }
    }
  }
}

// The parity tests at 128, 256 and 512 that docs/governance/tiers.md requires. Three rows of each
// product are compared, because no row depends on another.
TEST_P(MatMulQuant, CubesAndMisalignedSizes) {
  for (const Quant quant : {Quant::kInt8, Quant::kInt4}) {
    for (const std::int64_t size : {128, 256, 512}) {
      for (const auto& [m, k, n] : {std::tuple{size, size, size},
                                    {size - 1, size + 1, std::int64_t{67}},
                                    {std::int64_t{65}, size - 1, size + 1},
                                    {size + 1, std::int64_t{65}, size - 1}}) {
        QuantCase c{m, k, n, quant, 64, true};
        SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n) +
                     (quant == Quant::kInt4 ? " int4" : " int8"));
        const auto a = spiky_values(m, k);
        Operand b(b_shape(c), random_values(static_cast<std::size_t>(k * n), 2));
        Weight rows = encode(b.view(), in_rows(c), pool_);
        Weight panels = encode(
            b.view(), cpu::panel_encoding(DType::kF32, true, GetParam(), rows.encoding), pool_);
        const auto got = multiply(c, a, panels, GetParam(), pool_);
        c.m = 1;
        for (const std::int64_t row : {std::int64_t{0}, m / 2, m - 1}) {
          const std::vector<float> one(a.begin() + row * k, a.begin() + (row + 1) * k);
          const std::vector<float> result(got.begin() + row * n, got.begin() + (row + 1) * n);
          EXPECT_TRUE(same_bits(result, promised(c, one, rows, GetParam() != cpu::Simd::kSse4)))
              << "row " << row;
        }
      }
    }
  }
}

TEST_P(MatMulQuant, TheLargestSumsFit) {
  for (const Quant quant : {Quant::kInt8, Quant::kInt4}) {
    const QuantCase c{4, 96, 40, quant, 32};
    // In 4 bits 8 is the integer -8 of scale -1, and -7 its 7, the largest that is stored.
    std::vector<float> weights(96 * 40, -7.0f);
    for (std::size_t i = 0; i < weights.size(); i += 32) weights[i] = 8.0f;
    Operand b(b_shape(c), weights);
    Weight rows = encode(b.view(), in_rows(c), pool_);
    Weight panels =
        encode(b.view(), cpu::panel_encoding(DType::kF32, true, GetParam(), rows.encoding), pool_);
    std::vector<float> a(4 * 96, 1.0f);  // All are 127, or -127, or both by turns.
    std::fill_n(a.begin() + 96, 96, -1.0f);
    for (std::size_t i = 2 * 96; i < 3 * 96; i += 2) a[i] = -1.0f;
    const auto expected = promised(c, a, rows, GetParam() != cpu::Simd::kSse4);
    EXPECT_NEAR(expected[0], 3 * (8 - 31 * 7), 1.0);
    EXPECT_TRUE(same_bits(multiply(c, a, panels, GetParam(), pool_), expected));
  }
}

TEST_P(MatMulQuant, ARowDependsNeitherOnTheOthersNorOnThreads) {
  const auto a = spiky_values(75, 384);
  for (const auto& [quant, block] : {std::pair{Quant::kInt8, 128}, {Quant::kInt4, 32}}) {
    const QuantCase whole{75, 384, 500, quant, block};
    Operand b(b_shape(whole), random_values(384 * 500, 2));
    Weight panels =
        encode(b.view(), cpu::panel_encoding(DType::kF32, true, GetParam(), in_rows(whole)), pool_);
    const auto together = multiply(whole, a, panels, GetParam(), pool_);
    for (const int threads : {1, 3, 8}) {
      ThreadPool pool = make_pool(threads);
      for (const std::int64_t m : {1, 2, 3, 4, 5, 6, 11, 23, 33, 64, 75}) {
        QuantCase part = whole;
        part.m = m;
        const auto rows = std::vector<float>(a.begin(), a.begin() + m * 384);
        const auto alone = multiply(part, rows, panels, GetParam(), pool);
        EXPECT_TRUE(same_bits(alone, std::span(together).first(alone.size()))) << m;
      }
    }
  }
}

TEST_P(MatMulQuant, RowsOfSixteenBitsCountAsTheirValues) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    QuantCase c{5, 150, 40};
    auto a = spiky_values(5, 150);
    for (float& x : a) {
      x = type == DType::kBF16 ? f32_from_bf16(bf16_from_f32(x)) : f32_from_f16(f16_from_f32(x));
    }
    Operand b(b_shape(c), random_values(150 * 40, 2));
    Weight panels =
        encode(b.view(), cpu::panel_encoding(DType::kF32, true, GetParam(), in_rows(c)), pool_);
    const auto expected = multiply(c, a, panels, GetParam(), pool_);
    c.a_type = type;
    const auto got = multiply(c, a, panels, GetParam(), pool_);
    EXPECT_TRUE(same_bits(got, expected)) << dtype_name(type);
  }
}

TEST_P(MatMulQuant, AWeightBeyondF16LeavesOtherRowsAlone) {
  // Row 0 has a rest where row 1 has none, and b's scale there is infinite.
  const QuantCase c{2, 128, 32, Quant::kInt8, 128};
  Operand b(b_shape(c), random_values(128 * 32, 2));
  Weight panels =
      encode(b.view(), cpu::panel_encoding(DType::kF32, true, GetParam(), in_rows(c)), pool_);
  auto bytes = reinterpret_cast<std::uint8_t*>(panels.memory.data());
  const auto place = cpu::block_place(bytes, panels.encoding, 1, 3, 0);
  place.scale[0] = 0x00;
  place.scale[1] = 0x7C;
  auto a = random_values(2 * 128, 1);
  a[40] *= 1000.0f;
  const auto together = multiply(c, a, panels, GetParam(), pool_);
  QuantCase one = c;
  one.m = 1;
  const std::vector<float> second(a.begin() + 128, a.end());
  const auto alone = multiply(one, second, panels, GetParam(), pool_);
  EXPECT_TRUE(same_bits(alone, std::span(together).last(32)));
  EXPECT_TRUE(std::isinf(alone[3]));
}

TEST_P(MatMulQuant, TheEpilogueIsThatOfEveryProduct) {
  QuantCase c{9, 64, 70};
  c.op = {
      .transpose_b = true, .has_bias = true, .has_residual = true, .activation = Activation::kRelu};
  const auto a = random_values(9 * 64, 1), bias = random_values(70, 3),
             residual = random_values(9 * 70, 4);
  Operand b(b_shape(c), random_values(64 * 70, 2));
  Weight panels =
      encode(b.view(), cpu::panel_encoding(DType::kF32, true, GetParam(), in_rows(c)), pool_);
  const auto got = multiply(c, a, panels, GetParam(), pool_, bias, residual);
  c.op = {.transpose_b = true};
  auto expected = multiply(c, a, panels, GetParam(), pool_);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = std::max(expected[i] + bias[i % 70], 0.0f) + residual[i];
  }
  EXPECT_TRUE(same_bits(got, expected));
}

TEST_P(MatMulQuant, WhatIsNotFiniteStaysSo) {
  const QuantCase c{3, 161, 40};  // The last element lies alone in its 32.
  Operand b(b_shape(c), random_values(161 * 40, 2));
  Weight panels =
      encode(b.view(), cpu::panel_encoding(DType::kF32, true, GetParam(), in_rows(c)), pool_);
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    auto a = spiky_values(3, 161);
    a[2 * 161 - 1] = bad;
    const auto got = multiply(c, a, panels, GetParam(), pool_);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i / 40 == 1) << i;
    auto weights = random_values(161 * 40, 2);
    weights[7 * 161 + 3] = bad;
    Operand poisoned(b_shape(c), weights);
    Weight some = encode(poisoned.view(), panels.encoding, pool_);
    const auto out = multiply(c, random_values(3 * 161, 1), some, GetParam(), pool_);
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i % 40 == 7) << i;
  }
  // Too small to divide by counts as zero.
  const auto tiny = multiply(c, std::vector<float>(3 * 161, 1e-38f), panels, GetParam(), pool_);
  for (const float x : tiny) EXPECT_EQ(x, 0.0f);
}

/// The root of the mean squared error of a product, beside the root mean square of the product.
double relative_error(const QuantCase& c, const std::vector<float>& a, const std::vector<float>& b,
                      cpu::Simd simd, ThreadPool& pool) {
  Operand weights(b_shape(c), b);
  Weight panels =
      encode(weights.view(), cpu::panel_encoding(DType::kF32, true, simd, in_rows(c)), pool);
  const auto got = multiply(c, a, panels, simd, pool);
  double error = 0, size = 0;
  for (std::int64_t i = 0; i < c.m; ++i) {
    for (std::int64_t j = 0; j < c.n; ++j) {
      double exact = 0;
      for (std::int64_t k = 0; k < c.k; ++k) {
        exact += static_cast<double>(a[static_cast<std::size_t>(i * c.k + k)]) *
                 static_cast<double>(b[static_cast<std::size_t>(j * c.k + k)]);
      }
      error += std::pow(static_cast<double>(got[static_cast<std::size_t>(i * c.n + j)]) - exact, 2);
      size += exact * exact;
    }
  }
  return std::sqrt(error / size);
}

// Against the format that others know as Q8_0 (both operands in blocks of 32), on activations of
// which one channel in a hundred is 50 times larger: at most 1.2 of its error.
TEST_P(MatMulQuant, LargeChannelsSpoilFewOthers) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  QuantCase c{8, 2048, 64, Quant::kInt8, 128};
  std::vector<float> a(8 * 2048), b(64 * 2048);
  for (float& x : b) x = 0.02f * normal(random);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = normal(random) * (i % 2048 % 100 == 17 ? 50.0f : 1.0f);
  }
  const double ours = relative_error(c, a, b, GetParam(), pool_);
  c.block = 32;
  const double q8_0 = relative_error(c, a, b, GetParam(), pool_);
  EXPECT_LE(ours, 1.2 * q8_0);
  EXPECT_LT(ours, 0.03);
  c.quant = Quant::kInt4;
  EXPECT_LT(relative_error(c, a, b, GetParam(), pool_), 0.12);
}

}  // namespace
}  // namespace volta::test
