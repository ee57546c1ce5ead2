// Rounding weights: the bytes of the plain reference, on every instruction set, from every type,
// into every layout; and the blocks that are no numbers, or zeros, or beyond f16.
#include "kernels/cpu/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "operand.h"
#include "quant_scalar.h"

namespace volta::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes no_bytes(const Shape& shape, const Encoding& e) {
  // Not zeros: what has to be written must be.
  return Bytes(static_cast<std::size_t>(encoded_bytes(DType::kF32, shape, e)), 0xA5);
}

/// What the reference makes of x.
Bytes rounded(const Operand& x, const Shape& shape, const Encoding& e) {
  Bytes bytes = no_bytes(shape, e);
  const std::int64_t k = e.k(shape), n = e.n(shape), blocks = e.blocks(k);
  if (e.packing == Packing::kPanels) {
    const auto panel = static_cast<std::ptrdiff_t>(blocks * e.width * e.block_bytes());
    if (n % e.width != 0) std::fill(bytes.end() - panel, bytes.end(), std::uint8_t{0});
  }
  std::array<float, 256> values{};
  WeightBlock q;
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (std::int64_t i = 0; i < e.block; ++i) {
        const std::int64_t row = block * e.block + i;
        const std::int64_t at = e.transposed ? j * k + row : row * n + j;
        values[static_cast<std::size_t>(i)] = row < k ? x[static_cast<std::size_t>(at)] : 0.0f;
      }
      quantize_block(values.data(), e.block, e.quant, q);
      put_block(q, e, blocks, j, block, bytes.data());
    }
  }
  return bytes;
}

Bytes encoded(const View& from, const Encoding& to, const cpu::Context& context) {
  Bytes bytes = no_bytes(from.shape, to);
  const std::array in = {from}, out = {View{bytes.data(), {DType::kF32, from.shape, to}}};
  cpu::run(Encode{to}, {in, out, {}}, context);
  return bytes;
}

Encoding encoding_of(Quant quant, std::int32_t block, bool transposed, std::int32_t width) {
  return {.packing = width == 0 ? Packing::kRows : Packing::kPanels,
          .transposed = transposed,
          .width = width,
          .group = width == 0 ? 1 : 4,
          .quant = quant,
          .block = block};
}

/// Values of every kind of block, a kind a column: common ones, on and beside the borders of the
/// steps, large and tiny, zeros of both signs, what f16 cannot scale, and what is not finite.
std::vector<float> difficult_values(const Encoding& e, std::int64_t k, std::int64_t n) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(k * n));
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<std::size_t>(e.transposed ? j * k + i : i * n + j);
      const float x = normal(random);
      const float kinds[] = {0.02f * x,
                             static_cast<float>(random() % 33) / 2.0f - 8.0f,
                             static_cast<float>(random() % 509) / 2.0f - 127.0f,
                             1e-6f * x,
                             1e-8f * x,
                             1e-42f * x,
                             random() % 2 == 0 ? 0.0f : -0.0f,
                             -0.0f,
                             1e5f * x,
                             1e7f * x,
                             1e30f * x,
                             3e38f * (x < 0 ? -1.0f : 1.0f),
                             i == 3 ? kNaN : x,
                             i == k / 2 ? kInfinity : x,
                             i == k - 1 ? -kInfinity : x,
                             random() % 2 == 0 ? 1.0f : -1.0f,
                             -std::abs(x)};
      values[at] = kinds[static_cast<std::size_t>(j) % std::size(kinds)];
    }
  }
  return values;
}

struct QuantizeCase {
  std::int64_t k, n;
  std::int32_t block;
};
constexpr QuantizeCase kCases[] = {{1, 1, 32},     {32, 32, 32},   {96, 70, 32},
                                   {45, 97, 32},   {192, 40, 64},  {131, 33, 64},
                                   {256, 64, 128}, {300, 19, 128}, {260, 51, 256}};

TEST(Quantize, GivesTheBytesOfThePlainLoops) {
  for_each_simd([](const cpu::Context& context) {
    for (const auto& [k, n, block] : kCases) {
      for (const Quant quant : {Quant::kInt8, Quant::kInt4}) {
        for (const bool transposed : {false, true}) {
          const Shape shape = transposed ? Shape(n, k) : Shape(k, n);
          const auto values = difficult_values(encoding_of(quant, block, transposed, 0), k, n);
          for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
            Operand x(shape, values, dtype);
            for (const std::int32_t width : {0, 5, 8, 16, 32}) {
              const Encoding e = encoding_of(quant, block, transposed, width);
              EXPECT_EQ(encoded(x.view(), e, context), rounded(x, shape, e))
                  << k << "x" << n << " by " << block << (transposed ? " t" : "") << " int"
                  << format_info(quant).bits << " from " << dtype_name(dtype) << " width " << width;
            }
          }
        }
      }
    }
  });
}

TEST(Quantize, FindsTheBestScalesOfManyBlocks) {
  for_each_simd([](const cpu::Context& context) {
    const Shape shape(512, 1024);
    Operand x(shape, random_values(512 * 1024, 3, 0.1f));
    for (const Quant quant : {Quant::kInt8, Quant::kInt4}) {
      for (const std::int32_t width : {0, 32}) {
        const Encoding e = encoding_of(quant, 32, true, width);
        EXPECT_EQ(encoded(x.view(), e, context), rounded(x, shape, e));
      }
    }
  });
}

TEST(Quantize, MovesAndDecodesWhatItRounded) {
  for_each_simd([](const cpu::Context& context) {
    for (const auto& [k, n, block] : kCases) {
      for (const Quant quant : {Quant::kInt8, Quant::kInt4}) {
        for (const bool transposed : {false, true}) {
          const Shape shape = transposed ? Shape(n, k) : Shape(k, n);
          const auto size = static_cast<std::size_t>(k * n);
          Operand x(shape, random_values(size, 1));
          const Encoding in_rows = encoding_of(quant, block, transposed, 0);
          Bytes rows = encoded(x.view(), in_rows, context);
          const View stored(rows.data(), {DType::kF32, shape, in_rows});
          EXPECT_EQ(encoded(stored, in_rows, context), rows);
          for (const std::int32_t width : {8, 16, 32}) {
            const Encoding e = encoding_of(quant, block, transposed, width);
            Bytes panels = encoded(x.view(), e, context);
            EXPECT_EQ(encoded(stored, e, context), panels);
            for (const View& from : {stored, View{panels.data(), {DType::kF32, shape, e}}}) {
              Operand plain(shape);
              run_op(Encode{}, std::vector{from}, std::vector{plain.view()}, context);
              double error = 0, all = 0;
              for (std::size_t i = 0; i < size; ++i) {
                error += std::pow(plain[i] - x[i], 2);
                all += x[i] * x[i];
              }
              // Even steps of largest / 127 or / 8 err by a step's 1 / sqrt(12) or less.
              EXPECT_LE(error, all * (quant == Quant::kInt8 ? 2e-4 : 2e-2)) << k << "x" << n;
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace volta::test
