// How the CPU's panels arrange weights, and functions that read and write one block of a quantised
// weight in plain loops. Rounding to blocks is in quantize.cc. The kernels of the matrix product
// read panels with vector code of their own.
//
// A block of a panel has a block of each of its columns (`width` of them). First come the integers,
// plus their format's offset, in words of four bytes: word 0 of all columns, then word 1, and so
// on.
//   8 bits  each word holds four steps along K
//   4 bits  of every 32 steps, word i holds steps 4 i to 4 i + 3 in the low halves of its bytes
//           and steps 16 + 4 i to 16 + 4 i + 3 in the high halves
//   5 bits  of every 32 steps, words 0 to 3 hold the low four bits, as with 4 bits; in word 4, bit
//   g
//           of byte i is the fifth bit of step 4 g + i
//   6 bits  of every 16 steps, words 0 to 2 hold four steps each in the low six bits of their
//           bytes; the upper two bits hold two bits each of the last four steps
// Then come the factors of the integers. In q8 and q4 this is an f16 scale per column. In Q4_K,
// Q5_K and Q6_K these are the integer scales as bytes (those of sub-block 0 of all columns, then of
// sub-block 1, and so on), the minimums in the same order, the f16 scales and the f16 minimums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tensor/encoding.h"
#include "tensor/weight_format.h"

namespace volta::cpu {

/// The index of element (row, column) of a b with K = k in panels that are not quantised.
constexpr std::int64_t panel_index(const Encoding& e, std::int64_t k, std::int64_t row,
                                   std::int64_t column) {
  const std::int64_t group_begin = row / e.group * e.group;
  return (column / e.width * e.padded_k(k) + group_begin) * e.width + column % e.width * e.group +
         row % e.group;
}

/// Where a block of q8 or q4 is in memory. Rows have the same words as panels. Only the distance
/// between words differs, and panels of 8 bits hold q + 128 where rows hold q.
template <typename Byte>
struct BlockPlace {
  Byte* words;
  std::int64_t step;  ///< Bytes from word to word.
  Byte* scale;        ///< Two bytes: f16.
};

constexpr std::int64_t block_words(const Encoding& e) {
  return std::int64_t{e.block} * format_info(e.quant).bits / 32;
}
/// The bits in which each byte of this encoding differs from that of rows.
constexpr std::uint8_t panel_flip(const Encoding& e) {
  return e.packing == Packing::kPanels && e.quant == Quant::kInt8 ? 0x80 : 0;
}

/// The place of block `block` of column `column`; a column has `blocks` blocks.
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

/// Where the parts of a block of Q4_K, Q5_K or Q6_K of one column of a panel are.
template <typename Byte>
struct KPlace {
  Byte* words;     ///< Of column 0: word i of column j is at i * word_step + 4 * j.
  Byte* scales;    ///< Of this column, `width` bytes apart.
  Byte* minimums;  ///< Only in formats with minimums.
  Byte* scale;     ///< Two bytes: f16.
  Byte* minimum;   ///< Two bytes: f16; only in formats with minimums.
  std::int64_t width, word_step;

  Byte& at(std::int64_t word, std::int64_t i) const { return words[word * word_step + i]; }
};

// SAFETY: `data` is a whole matrix of this encoding in panels, and the block is one of it.
template <typename Byte>
KPlace<Byte> k_place(Byte* data, const Encoding& e, std::int64_t blocks, std::int64_t column,
                     std::int64_t block) {
  const std::int64_t width = e.width, j = column % width;
  Byte* first = data + (column / width * blocks + block) * width * e.block_bytes();
  Byte* scales = first + 4 * width * block_words(e);
  Byte* minimums = scales + e.block / format_info(e.quant).scale_steps * width;
  Byte* scale = format_info(e.quant).minimums ? minimums + e.block / 32 * width : minimums;
  return {first + 4 * j,           scales + j, minimums + j, scale + 2 * j,
          scale + 2 * (width + j), width,      4 * width};
}

/// Writes a block of Q4_K, Q5_K or Q6_K into a panel.
// SAFETY: as k_place().
inline void put_k_block(const WeightBlock& from, std::uint8_t* data, const Encoding& e,
                        std::int64_t blocks, std::int64_t column, std::int64_t block) {
  const KPlace<std::uint8_t> to = k_place(data, e, blocks, column, block);
  const FormatInfo& format = format_info(e.quant);
  const std::int8_t* q = from.q.data();
  const auto byte_of = [&](std::int64_t k) { return static_cast<unsigned>(q[k] + format.offset); };
  for (std::int64_t k = 0; k < kMaxBlock; k += format.scale_steps) {
    const std::int64_t first_word = k * format.bits / 32;
    for (std::int64_t i = 0; e.quant != Quant::kQ6K && i < 16; ++i) {
      to.at(first_word + i / 4, i % 4) =
          static_cast<std::uint8_t>((byte_of(k + i) & 15U) | (byte_of(k + i + 16) << 4));
    }
    for (std::int64_t i = 0; e.quant == Quant::kQ5K && i < 4; ++i) {
      unsigned fifth = 0;
      for (std::int64_t g = 0; g < 8; ++g) fifth |= byte_of(k + 4 * g + i) >> 4 << g;
      to.at(first_word + 4, i) = static_cast<std::uint8_t>(fifth);
    }
    for (std::int64_t i = 0; e.quant == Quant::kQ6K && i < 12; ++i) {
      const unsigned two = byte_of(k + 12 + i % 4) >> (i / 4 * 2) & 3U;
      to.at(first_word + i / 4, i % 4) = static_cast<std::uint8_t>(byte_of(k + i) | (two << 6));
    }
    const std::int64_t sub = k / format.scale_steps;
    to.scales[sub * to.width] =
        static_cast<std::uint8_t>(from.scales[static_cast<std::size_t>(sub)]);
    if (format.minimums) {
      to.minimums[sub * to.width] =
          static_cast<std::uint8_t>(from.minimums[static_cast<std::size_t>(sub)]);
    }
  }
  std::memcpy(to.scale, &from.scale, 2);
  if (format.minimums) std::memcpy(to.minimum, &from.minimum, 2);
}

/// Reads a block of Q4_K, Q5_K or Q6_K from a panel.
// SAFETY: as k_place().
inline void get_k_block(const std::uint8_t* data, const Encoding& e, std::int64_t blocks,
                        std::int64_t column, std::int64_t block, WeightBlock& to) {
  const KPlace<const std::uint8_t> from = k_place(data, e, blocks, column, block);
  const FormatInfo& format = format_info(e.quant);
  std::int8_t* q = to.q.data();
  for (std::int64_t k = 0; k < kMaxBlock; k += format.scale_steps) {
    const std::int64_t first_word = k * format.bits / 32;
    for (std::int64_t i = 0; e.quant != Quant::kQ6K && i < 16; ++i) {
      const int byte = from.at(first_word + i / 4, i % 4);
      q[k + i] = static_cast<std::int8_t>(byte & 15);
      q[k + i + 16] = static_cast<std::int8_t>(byte >> 4);
    }
    for (std::int64_t i = 0; e.quant == Quant::kQ5K && i < 32; ++i) {
      const int fifth = from.at(first_word + 4, i % 4) >> (i / 4) & 1;
      q[k + i] = static_cast<std::int8_t>(q[k + i] | (fifth << 4));
    }
    for (std::int64_t i = 0; e.quant == Quant::kQ6K && i < 4; ++i) {
      int last = 0;
      for (std::int64_t word = 0; word < 3; ++word) {
        const int byte = from.at(first_word + word, i);
        q[k + 4 * word + i] = static_cast<std::int8_t>((byte & 63) - format.offset);
        last |= byte >> 6 << (2 * word);
      }
      q[k + 12 + i] = static_cast<std::int8_t>(last - format.offset);
    }
    const std::int64_t sub = k / format.scale_steps;
    to.scales[static_cast<std::size_t>(sub)] =
        static_cast<std::int8_t>(from.scales[sub * from.width]);
    if (format.minimums) {
      to.minimums[static_cast<std::size_t>(sub)] =
          static_cast<std::int8_t>(from.minimums[sub * from.width]);
    }
  }
  std::memcpy(&to.scale, from.scale, 2);
  if (format.minimums) std::memcpy(&to.minimum, from.minimum, 2);
}

/// Reads a block from rows or panels.
// SAFETY: `data` is a whole matrix of this encoding, and the block is one of it.
inline void get_block(const std::uint8_t* data, const Encoding& e, std::int64_t blocks,
                      std::int64_t column, std::int64_t block, WeightBlock& to) {
  if (e.packing == Packing::kRows) {
    const auto bytes = static_cast<std::size_t>(e.block_bytes());
    const auto at = static_cast<std::size_t>(column * blocks + block) * bytes;
    read_stored_block(e.quant, std::as_bytes(std::span(data + at, bytes)), to);
    return;
  }
  if (format_info(e.quant).scale_steps != 0) {
    get_k_block(data, e, blocks, column, block, to);
    return;
  }
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
