// The table of formats: the sizes and names in its rows, and single blocks decoded and compared
// with values computed by hand. tests/formats/gguf compares whole files with values of another
// implementation.
#include "tensor/weight_format.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <random>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/encoding.h"

namespace volta {
namespace {

TEST(WeightFormat, EveryRowIsFoundByItsIntegersAndHasNamesOfItsOwn) {
  std::set<std::string_view> names, elements;
  for (const FormatInfo& row : kFormats) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(elements.insert(row.elements).second) << row.elements;
    if (row.quant == Quant::kNone) {
      EXPECT_EQ(row.bits, dtype_size(row.dtype) * 8) << row.name;
    } else {
      EXPECT_EQ(&format_info(row.quant), &row) << row.name;
    }
  }
  EXPECT_EQ(format_info(Quant::kNone).name, "f32");
}

TEST(WeightFormat, NewBlocksDivideKWhereTheyCan) {
  EXPECT_EQ(format_new_block(Quant::kInt8, 256), 128);
  EXPECT_EQ(format_new_block(Quant::kInt8, 192), 64);
  EXPECT_EQ(format_new_block(Quant::kInt8, 96), 32);
  EXPECT_EQ(format_new_block(Quant::kInt8, 100), 32);
  EXPECT_EQ(format_new_block(Quant::kInt4, 256), 32);
  for (const FormatInfo& row : kFormats) {
    if (row.quant == Quant::kNone) continue;
    EXPECT_TRUE(format_has_block(row.quant, format_new_block(row.quant, 256))) << row.name;
  }
}

TEST(WeightFormat, BlocksTakeTheBytesThatGgufSays) {
  EXPECT_EQ(format_block_bytes(Quant::kInt8, 32), 34);
  EXPECT_EQ(format_block_bytes(Quant::kInt4, 32), 18);
  EXPECT_EQ(format_block_bytes(Quant::kQ4K, 256), 144);
  EXPECT_EQ(format_block_bytes(Quant::kQ5K, 256), 176);
  EXPECT_EQ(format_block_bytes(Quant::kQ6K, 256), 210);
  EXPECT_EQ(format_block_bytes(Quant::kNone, 1), 4);
  const Encoding rows{.transposed = true, .quant = Quant::kQ4K, .block = 256};
  Encoding panels = rows;
  panels.packing = Packing::kPanels;
  panels.width = 8;
  panels.group = 4;
  EXPECT_EQ(encoded_bytes(DType::kF32, Shape(9, 512), rows), 9 * 2 * 144);
  EXPECT_EQ(encoded_bytes(DType::kF32, Shape(9, 512), panels), 16 * 2 * 148);
}

TEST(WeightFormat, SaysWhichBlocksThereAre) {
  for (const Quant quant : {Quant::kInt8, Quant::kInt4}) {
    for (const int block : {32, 64, 96, 256}) EXPECT_TRUE(format_has_block(quant, block));
    for (const int block : {0, 1, 31, 33, 288, -32}) EXPECT_FALSE(format_has_block(quant, block));
  }
  for (const Quant quant : {Quant::kQ4K, Quant::kQ5K, Quant::kQ6K}) {
    EXPECT_TRUE(format_has_block(quant, 256));
    for (const int block : {0, 32, 128, 512}) EXPECT_FALSE(format_has_block(quant, block));
  }
}

// Whatever the bytes, q plus the offset has the bits that the row says, so that kernels can take it
// for unsigned.
TEST(WeightFormat, AnyBytesAreIntegersOfTheirBits) {
  std::mt19937 random(1);
  for (const FormatInfo& row : kFormats) {
    if (row.quant == Quant::kNone) continue;
    std::set<int> seen;
    for (int round = 0; round < 64; ++round) {
      std::vector<std::byte> bytes(
          static_cast<std::size_t>(format_block_bytes(row.quant, kMaxBlock)));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 256);
      WeightBlock block;
      read_stored_block(row.quant, bytes, block);
      for (const std::int8_t q : block.q) seen.insert(q + row.offset);
    }
    EXPECT_EQ(*seen.begin(), 0) << row.name;
    EXPECT_EQ(*seen.rbegin(), (1 << row.bits) - 1) << row.name;
    EXPECT_EQ(std::ssize(seen), 1 << row.bits) << row.name;
  }
}

TEST(WeightFormat, ValuesAreExact) {
  WeightBlock block;
  block.scale = f16_from_f32(0.5f);
  block.minimum = f16_from_f32(0.25f);
  block.q.fill(3);
  block.scales.fill(2);
  block.minimums.fill(5);
  block.scales[1] = -7;
  std::array<float, 40> values{};
  decode_block(Quant::kInt8, block, values);
  EXPECT_EQ(values[0], 1.5f);
  decode_block(Quant::kQ4K, block, values);
  EXPECT_EQ(values[31], 0.5f * 2 * 3 - 0.25f * 5);
  EXPECT_EQ(values[32], 0.5f * -7 * 3 - 0.25f * 5);
  decode_block(Quant::kQ5K, block, values);
  EXPECT_EQ(values[32], 0.5f * -7 * 3 - 0.25f * 5);
  decode_block(Quant::kQ6K, block, values);
  EXPECT_EQ(values[15], 3.0f);
  EXPECT_EQ(values[16], 0.5f * -7 * 3);
  EXPECT_EQ(values[32], 3.0f);
}

}  // namespace
}  // namespace volta
