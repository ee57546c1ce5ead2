// Where a block of quantised weights lies in the two layouts of tensor/encoding.h, and reading one.
// Plain loops; quantize.cc rounds to blocks, and the matrix product has its own reader of panels.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "tensor/encoding.h"
#include "tensor/float16.h"

namespace volta::cpu {

/// Both layouts keep a block as the same words of four bytes: four steps along K, or with 4 bits
/// four of each half of 32. What differs is how far apart they lie, and that panels hold q + 128
/// where rows hold q of 8 bits.
template <typename Byte>
struct BlockPlace {
  Byte* words;
  std::int64_t step;  ///< Bytes from word to word.
  Byte* scale;        ///< Two bytes: f16.
};

constexpr std::int64_t block_words(const Encoding& e) {
  return std::int64_t{e.block} * quant_bits(e.quant) / 32;
}
/// What the first byte of a word becomes when it moves between rows and panels; so do the others.
constexpr std::uint8_t panel_flip(const Encoding& e) {
  return e.packing == Packing::kPanels && e.quant == Quant::kInt8 ? 0x80 : 0;
}

/// Block `block` of column `column`, of `blocks` a column.
// SAFETY: `data` is a whole matrix of this encoding, and the block is one of it.
template <typename Byte>
BlockPlace<Byte> block_place(Byte* data, const Encoding& e, std::int64_t blocks,
                             std::int64_t column, std::int64_t block) {
  const std::int64_t width = e.packing == Packing::kPanels ? e.width : 1;
  Byte* first = data + (column / width * blocks + block) * width * e.block_bytes();
  const std::int64_t j = column % width;
  if (e.packing == Packing::kRows) return {first + 2, 4, first};
  return {first + 4 * j, 4 * width, first + 4 * width * block_words(e) + 2 * j};
}

/// A block along K of one column: up to 256 integers and the f16 bits of their scale.
struct QuantBlock {
  std::uint16_t scale = 0;
  std::array<std::int8_t, 256> q{};
};

// SAFETY: as block_place().
inline void get_block(const std::uint8_t* data, const Encoding& e, std::int64_t blocks,
                      std::int64_t column, std::int64_t block, QuantBlock& to) {
  const auto from = block_place(data, e, blocks, column, block);
  std::memcpy(&to.scale, from.scale, 2);
  const std::uint8_t flip = panel_flip(e);
  std::int8_t* q = to.q.data();
  for (std::int64_t word = 0; word < block_words(e); ++word) {
    for (std::int64_t i = 0; i < 4; ++i) {
      const int byte = from.words[word * from.step + i];
      if (e.quant == Quant::kInt8) {
        q[word * 4 + i] = static_cast<std::int8_t>(byte ^ flip);
      } else {
        const std::int64_t k = word / 4 * 32 + word % 4 * 4 + i;
        q[k] = static_cast<std::int8_t>((byte & 15) - 8);
        q[k + 16] = static_cast<std::int8_t>((byte >> 4) - 8);
      }
    }
  }
}

}  // namespace volta::cpu
