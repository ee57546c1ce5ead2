// The product with a b of Q4_K, Q5_K or Q6_K: the sums that matmul_k_tile-inl.h promises, bit for
// bit, on every instruction set, with VNNI and without; the product of the values in f64; and the
// ways from the stored blocks into panels and to f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/matmul_quant.h"
#include "kernels/cpu/quant.h"
#include "quant_fixture.h"
#include "tensor/weight_format.h"

namespace volta::test {
namespace {

constexpr Quant kKinds[] = {Quant::kQ4K, Quant::kQ5K, Quant::kQ6K};

/// A weight in rows of random blocks, any byte of which is valid; scales around `scale`.
Weight random_rows(const QuantCase& c, float scale = 1e-4f) {
  Weight rows = empty_weight(b_shape(c), in_rows(c));
  auto* bytes = reinterpret_cast<std::uint8_t*>(rows.memory.data());
  const std::int64_t size = rows.encoding.block_bytes(), blocks = c.n * rows.encoding.blocks(c.k);
  std::mt19937 random(3);
  for (std::int64_t i = 0; i < blocks * size; ++i) bytes[i] = static_cast<std::uint8_t>(random());
  for (std::int64_t i = 0; i < blocks; ++i) {
    const auto half = [&](float value) {
      return f16_from_f32(value * (0.5f + static_cast<float>(random() % 64) / 64.0f));
    };
    const std::uint16_t d = half(scale), least = half(8 * scale);
    std::memcpy(bytes + i * size + (c.quant == Quant::kQ6K ? 208 : 0), &d, 2);
    if (c.quant != Quant::kQ6K) std::memcpy(bytes + i * size + 2, &least, 2);
  }
  return rows;
}

QuantCase k_case(std::int64_t m, std::int64_t k, std::int64_t n, Quant quant,
                 bool transposed = true) {
  return {m, k, n, quant, kMaxBlock, transposed};
}

/// What some steps add to an element, without a's scale.
float scaled_sum(const WeightBlock& b, Quant quant, std::size_t begin, std::size_t count,
                 const int* q, bool fused) {
  const auto steps = static_cast<std::size_t>(format_info(quant).scale_steps);
  int part = 0, least = 0;
  for (std::size_t first = 0; first < count; first += steps) {
    const std::size_t sub = (begin + first) / steps;
    int sum = 0, all = 0;
    for (std::size_t k = first; k < first + steps; ++k) {
      sum += b.q[begin + k] * q[k];
      all += q[k];
    }
    part += sum * b.scales[sub];
    if (quant != Quant::kQ6K) least -= all * b.minimums[sub];
  }
  const float sum = static_cast<float>(part) * f32_from_f16(b.scale);
  if (quant == Quant::kQ6K) return sum;
  return multiply_add(fused, static_cast<float>(least), f32_from_f16(b.minimum), sum);
}

struct Promise {
  std::vector<float> sums;
  std::vector<double> exact;   ///< Of the same integers of a, in f64.
  std::vector<double> bounds;  ///< How far f32 may be from it.
};
Promise promised(const QuantCase& c, const std::vector<float>& a, Weight& rows, bool fused) {
  const std::int64_t blocks = rows.encoding.blocks(c.k);
  ThreadPool pool = make_pool(1);
  const auto values = decode(rows, pool);
  Promise out;
  for (std::int64_t i = 0; i < c.m; ++i) {
    for (std::int64_t j = 0; j < c.n; ++j) {
      float total = 0;
      double exact = 0, size = 0;
      for (std::int64_t block = 0; block < blocks; ++block) {
        WeightBlock b;
        cpu::get_block(rows.view().as<const std::uint8_t>(), rows.encoding, blocks, j, block, b);
        const std::size_t begin = static_cast<std::size_t>(i * c.k + block * kMaxBlock);
        const auto x = round_block(std::span(a).subspan(begin, kMaxBlock), fused);
        total = multiply_add(fused, scaled_sum(b, c.quant, 0, kMaxBlock, x.whole.q.data(), fused),
                             x.whole.scale, total);
        for (std::size_t r = 0; r < x.rests.size(); ++r) {
          if (!x.rests[r]) continue;
          total =
              multiply_add(fused, scaled_sum(b, c.quant, 32 * r, 32, x.rests[r]->q.data(), fused),
                           x.rests[r]->scale, total);
        }
        for (std::size_t k = 0; k < kMaxBlock; ++k) {
          const std::int64_t row = block * kMaxBlock + static_cast<std::int64_t>(k);
          const double weight =
              values[static_cast<std::size_t>(c.transposed ? j * c.k + row : row * c.n + j)];
          double rounded = static_cast<double>(x.whole.scale) * x.whole.q[k];
          if (const auto& rest = x.rests[k / 32]) {
            rounded += static_cast<double>(rest->scale) * rest->q[k % 32];
          }
          exact += rounded * weight;
          // A value of Q4_K or Q5_K is a difference with a minimum of at most 63 * 1.5 * 8e-4.
          size += std::abs(rounded) * (std::abs(weight) + 2 * 0.0756);
        }
      }
      out.sums.push_back(total);
      out.exact.push_back(exact);
      out.bounds.push_back(size * static_cast<double>(c.k / 4) * 0x1p-24);
    }
  }
  return out;
}

class MatMulK : public testing::TestWithParam<cpu::Simd> {
 protected:
  bool fused() const { return GetParam() != cpu::Simd::kSse4; }
  Weight panels_of(Weight& rows) {
    return encode(
        rows.view(),
        cpu::panel_encoding(DType::kF32, rows.encoding.transposed, GetParam(), rows.encoding),
        pool_);
  }
  ThreadPool pool_ = make_pool(2);
};
INSTANTIATE_TEST_SUITE_P(EverySimd, MatMulK, testing::ValuesIn(available_simd()),
                         [](const auto& simd) { return simd_label(simd.param); });

TEST_P(MatMulK, GivesThePromisedSums) {
  for (const Quant quant : kKinds) {
    for (const auto& [m, k, n] : {std::tuple{1, 256, 1},
                                  {1, 512, 200},
                                  {2, 256, 40},
                                  {3, 768, 97},
                                  {5, 256, 17},
                                  {7, 512, 64},
                                  {19, 256, 130},
                                  {26, 512, 65}}) {
      for (const bool transposed : {false, true}) {
        const QuantCase c = k_case(m, k, n, quant, transposed);
        SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n) +
                     (transposed ? " t " : " ") + std::string(format_info(quant).name));
        const auto a = spiky_values(m, k);
        Weight rows = random_rows(c);
        Weight panels = panels_of(rows);
        const Promise expected = promised(c, a, rows, fused());
        const auto got = multiply(c, a, panels, GetParam(), pool_);
        EXPECT_TRUE(same_bits(got, expected.sums));
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_NEAR(got[i], expected.exact[i], expected.bounds[i]) << i;
        }
      }
    }
  }
}

// The parity tests at 128, 256 and 512 that docs/governance/tiers.md requires; K is a multiple of
// 256. Three rows of each product are compared, because no row depends on another.
TEST_P(MatMulK, CubesAndMisalignedSizes) {
  for (const Quant quant : kKinds) {
    for (const auto& [m, k, n] : {std::tuple{128, 256, 128},
                                  {256, 256, 256},
                                  {512, 512, 512},
                                  {127, 256, 129},
                                  {257, 256, 255},
                                  {513, 512, 511}}) {
      QuantCase c = k_case(m, k, n, quant, true);
      SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n) + " " +
                   std::string(format_info(quant).name));
      const auto a = spiky_values(m, k);
      Weight rows = random_rows(c);
      Weight panels = panels_of(rows);
      const auto got = multiply(c, a, panels, GetParam(), pool_);
      c.m = 1;
      for (const std::int64_t row : {0, m / 2, m - 1}) {
        const std::vector<float> one(a.begin() + row * k, a.begin() + (row + 1) * k);
        const std::vector<float> result(got.begin() + row * n, got.begin() + (row + 1) * n);
        EXPECT_TRUE(same_bits(result, promised(c, one, rows, fused()).sums)) << "row " << row;
      }
    }
  }
}

TEST_P(MatMulK, PanelsHoldTheBlocksOfTheRows) {
  for (const Quant quant : kKinds) {
    for (const bool transposed : {false, true}) {
      const QuantCase c = k_case(1, 512, 45, quant, transposed);
      Weight rows = random_rows(c);
      Weight panels = panels_of(rows);
      const auto values = decode(rows, pool_);
      EXPECT_EQ(decode(panels, pool_), values);
      const Weight again = encode(rows.view(), rows.encoding, pool_);
      EXPECT_EQ(again.memory, rows.memory);
      if (!transposed) continue;
      // Rows of the table, in panels and as stored.
      for (Weight* table : {&rows, &panels}) {
        Operand ids = Operand::ints(Shape(3), {44, 0, 17}), out(Shape(3, 512));
        run_op(Embedding{}, std::vector{table->view(), ids.view()}, std::vector{out.view()},
               {GetParam(), &pool_, nullptr});
        for (const auto& [i, id] : {std::pair{0, 44}, {1, 0}, {2, 17}}) {
          const auto row = out.values();
          EXPECT_TRUE(std::equal(row.begin() + i * 512, row.begin() + (i + 1) * 512,
                                 values.begin() + id * 512));
        }
      }
    }
  }
}

TEST_P(MatMulK, TheLargestSumsFit) {
  for (const Quant quant : kKinds) {
    const QuantCase c = k_case(4, 256, 40, quant);
    Weight rows = random_rows(c);
    auto* bytes = reinterpret_cast<std::uint8_t*>(rows.memory.data());
    const std::int64_t size = rows.encoding.block_bytes();
    for (std::int64_t i = 0; i < c.n * size; ++i) {
      const std::int64_t at = i % size;
      // All integers and their scales are the largest, or in Q6_K's odd columns the lowest.
      const bool low = quant == Quant::kQ6K && i / size % 2 == 1;
      const bool scale = quant == Quant::kQ6K ? at >= 208 : at < 4;
      if (!scale) bytes[i] = low ? 0x00 : 0xFF;
      if (quant == Quant::kQ6K && at >= 192 && !scale) bytes[i] = low ? 0x80 : 0x7F;
    }
    Weight panels = panels_of(rows);
    std::vector<float> a(4 * 256, 1.0f);
    std::fill_n(a.begin() + 256, 256, -1.0f);
    for (std::size_t i = 512; i < 768; i += 2) a[i] = -1.0f;
    const Promise expected = promised(c, a, rows, fused());
    EXPECT_TRUE(same_bits(multiply(c, a, panels, GetParam(), pool_), expected.sums));
  }
}

// Rows whose sums of sub-blocks are just below and above 16 bits, and whose sums of blocks have
// more bits than a float.
TEST_P(MatMulK, SumsOfAboutSixteenBitsAreExact) {
  for (const Quant quant : kKinds) {
    const QuantCase c = k_case(18, 512, 70, quant);
    Weight rows = random_rows(c);
    auto* bytes = reinterpret_cast<std::uint8_t*>(rows.memory.data());
    const std::int64_t size = rows.encoding.block_bytes();
    // Of every four columns, one has random integers, one the largest, one the lowest, and one
    // large ones; all but the first have large scales.
    for (std::int64_t i = 0; i < c.n * 2 * size; ++i) {
      const std::int64_t at = i % size, kind = i / (2 * size) % 4;
      const bool q6 = quant == Quant::kQ6K;
      const bool factor = q6 ? at >= 208 : at < 4, scale = q6 ? at >= 192 : at < 16;
      if (kind == 0 || factor) continue;
      const std::uint8_t integer = kind == 1 ? 0xFF : kind == 2 ? 0x00 : bytes[i] | 0xEE;
      bytes[i] = scale ? (q6 ? 0x7F : 0xFF) : integer;
    }
    Weight panels = panels_of(rows);
    // The integers of a: the first one of a block is 127, so that the scale is 1. From the second
    // sub-block on, one of 32 is `odd`, and the others are `usual`. The largest sum in 16 bits is
    // 15 * 2184 = 15 * (31 * 68 + 76) in Q4_K, and the lowest is -32 * 1024 = -32 * (16 * 64) in
    // Q6_K.
    for (const auto& [usual, odd] : {std::pair{30.0f, 30.0f},
                                     {64.0f, 64.0f},
                                     {64.0f, 65.0f},
                                     {68.0f, 76.0f},
                                     {68.0f, 77.0f},
                                     {127.0f, 127.0f}}) {
      SCOPED_TRACE(std::string(format_info(quant).name) + " " + std::to_string(odd));
      std::vector<float> a(static_cast<std::size_t>(c.m * c.k));
      std::mt19937 random(5);
      for (std::size_t i = 0; i < a.size(); ++i) {
        // Six rows are positive, six negative and six mixed, because a tile has up to six rows.
        const std::size_t sign = i / 512 / 6;
        const bool negative = sign == 1 || (sign == 2 && random() % 2 == 0);
        const float others = i % 32 == 3 ? odd : usual;
        const float magnitude = i % 256 >= 32 ? others : i % 256 == 0 ? 127.0f : 30.0f;
        a[i] = negative ? -magnitude : magnitude;
      }
      const Promise expected = promised(c, a, rows, fused());
      EXPECT_TRUE(same_bits(multiply(c, a, panels, GetParam(), pool_), expected.sums));
    }
  }
}

TEST_P(MatMulK, ARowDependsNeitherOnTheOthersNorOnThreads) {
  const auto a = spiky_values(23, 512);
  for (const Quant quant : kKinds) {
    const QuantCase whole = k_case(23, 512, 300, quant);
    Weight rows = random_rows(whole);
    Weight panels = panels_of(rows);
    const auto together = multiply(whole, a, panels, GetParam(), pool_);
    for (const int threads : {1, 3}) {
      ThreadPool pool = make_pool(threads);
      for (const std::int64_t m : {1, 2, 4, 11, 23}) {
        QuantCase part = whole;
        part.m = m;
        const auto some = std::vector<float>(a.begin(), a.begin() + m * 512);
        const auto alone = multiply(part, some, panels, GetParam(), pool);
        EXPECT_TRUE(same_bits(alone, std::span(together).first(alone.size()))) << m;
      }
    }
  }
}

TEST_P(MatMulK, WhatIsNotFiniteStaysSo) {
  for (const Quant quant : kKinds) {
    const QuantCase c = k_case(3, 512, 40, quant);
    Weight rows = random_rows(c);
    Weight panels = panels_of(rows);
    for (const float bad : {kNaN, kInfinity, -kInfinity}) {
      auto a = spiky_values(3, 512);
      a[2 * 512 - 1] = bad;
      const auto got = multiply(c, a, panels, GetParam(), pool_);
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i / 40 == 1) << i;
    }
    auto* bytes = reinterpret_cast<std::uint8_t*>(rows.memory.data());
    const std::uint16_t nan = 0x7E00;  // The scale of column 7's second block.
    std::memcpy(bytes + 15 * rows.encoding.block_bytes() + (quant == Quant::kQ6K ? 208 : 0), &nan,
                2);
    Weight spoilt = panels_of(rows);
    const auto out = multiply(c, spiky_values(3, 512), spoilt, GetParam(), pool_);
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i % 40 == 7) << i;
  }
}

}  // namespace
}  // namespace volta::test
