// The formats of weights: the numbers that are stored for a weight, which are the same in every
// file and on every device. One table has a row for each format. The arrangement of blocks in a
// device's memory is called packing (tensor/encoding.h) and is independent of the format.
// C++20-clean, so that kernels of every backend can use it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"
#include "tensor/float16.h"

namespace [[gnu::visibility("default")]] volta {

/// Weights as small integers in blocks along K.
enum class Quant : std::uint8_t {
  kNone,  ///< No integers: the elements have the tensor's dtype.
  kInt8,  ///< scale * q, q in [-127, 127]. In blocks of 32 it is GGUF's Q8_0.
  kInt4,  ///< scale * q, q in [-8, 7]. In blocks of 32 it is GGUF's Q4_0.
  kQ4K,   ///< GGUF's Q4_K: (scale * s) * q - minimum * m, q in [0, 15]; s, m per 32 elements.
  kQ5K,   ///< GGUF's Q5_K: as kQ4K, q in [0, 31].
  kQ6K,   ///< GGUF's Q6_K: (scale * s) * q, q in [-32, 31]; s per 16 elements.
};

/// The maximum number of elements per block, over all formats.
inline constexpr std::int32_t kMaxBlock = 256;

/// A row of the table of formats.
struct FormatInfo {
  DType dtype = DType::kF32;     ///< Of the elements; f32 if they are integers in blocks.
  Quant quant = Quant::kNone;    ///< The kind of integers.
  std::string_view name;         ///< In options and reports: "q8".
  std::string_view elements;     ///< The elements' name in the text of a tensor: "int8".
  std::int32_t block = 1;        ///< Elements per block; 0: a multiple of 32, at most kMaxBlock.
  std::int32_t new_block = 0;    ///< If `block` is 0: the longest that Volta itself makes.
  std::int32_t bits = 32;        ///< Bits per element.
  std::int32_t scale_bytes = 0;  ///< Bytes per block besides the elements.
  std::int32_t scale_at = 0;     ///< The byte of a stored block at which its f16 scale is.
  std::int32_t scale_steps = 0;  ///< Elements per integer scale; 0: it has none.
  bool minimums = false;         ///< Whether each integer scale has a minimum, which is
                                 ///< subtracted. Their f16 factor is behind the scale.
  bool from_f32 = true;          ///< Whether Encode can round f32 to it.
  std::int32_t offset = 0;       ///< Kernels add this to q to make it non-negative.
};

/// All formats. The format of b alone determines how MatMul treats a. If b consists of integers,
/// each row of a is rounded to int8 (ops/op.h) and the products within a block are added as
/// integers. Otherwise a is not rounded.
inline constexpr std::array kFormats = {
    FormatInfo{.dtype = DType::kF32, .name = "f32", .elements = "f32", .bits = 32},
    FormatInfo{.dtype = DType::kBF16, .name = "bf16", .elements = "bf16", .bits = 16},
    FormatInfo{.dtype = DType::kF16, .name = "f16", .elements = "f16", .bits = 16},
    FormatInfo{.quant = Quant::kInt8,
               .name = "q8",
               .elements = "int8",
               .block = 0,
               .new_block = 128,
               .bits = 8,
               .scale_bytes = 2,
               .offset = 128},
    FormatInfo{.quant = Quant::kInt4,
               .name = "q4",
               .elements = "int4",
               .block = 0,
               .new_block = 32,  // Sixteen levels are too few for the spread of more values.
               .bits = 4,
               .scale_bytes = 2,
               .offset = 8},
    FormatInfo{.quant = Quant::kQ4K,
               .name = "q4_k",
               .elements = "q4_k",
               .block = 256,
               .bits = 4,
               .scale_bytes = 16,
               .scale_steps = 32,
               .minimums = true,
               .from_f32 = false},
    FormatInfo{.quant = Quant::kQ5K,
               .name = "q5_k",
               .elements = "q5_k",
               .block = 256,
               .bits = 5,
               .scale_bytes = 16,
               .scale_steps = 32,
               .minimums = true,
               .from_f32 = false},
    FormatInfo{.quant = Quant::kQ6K,
               .name = "q6_k",
               .elements = "q6_k",
               .block = 256,
               .bits = 6,
               .scale_bytes = 18,
               .scale_at = 208,
               .scale_steps = 16,
               .from_f32 = false,
               .offset = 32},
};

/// The row of a kind of integers; for kNone, the row of f32.
constexpr const FormatInfo& format_info(Quant quant) {
  for (const FormatInfo& row : kFormats) {
    if (row.quant == quant) return row;
  }
  return kFormats.front();
}

/// The size in bytes of a block of `block` elements.
constexpr std::int64_t format_block_bytes(Quant quant, std::int64_t block) {
  const FormatInfo& row = format_info(quant);
  return block * row.bits / 8 + row.scale_bytes;
}

/// Whether a weight in this format can have blocks of `block` elements.
constexpr bool format_has_block(Quant quant, std::int64_t block) {
  const std::int32_t only = format_info(quant).block;
  if (only != 0) return block == only;
  return block >= 32 && block <= kMaxBlock && block % 32 == 0;
}

/// The elements per block of a weight with K = k that Volta itself rounds to this format: the
/// longest block of 128, 64 and 32 that the format allows and that divides K, or 32 if none does.
constexpr std::int32_t format_new_block(Quant quant, std::int64_t k) {
  const FormatInfo& format = format_info(quant);
  if (format.block != 0) return format.block;
  std::int32_t block = format.new_block;
  while (block > 32 && k % block != 0) block /= 2;
  return block;
}

/// An unpacked block of any format of integers.
struct WeightBlock {
  std::uint16_t scale = 0;                             ///< f16 bits.
  std::uint16_t minimum = 0;                           ///< f16 bits; of formats with minimums.
  std::array<std::int8_t, kMaxBlock / 16> scales{};    ///< One per scale_steps elements.
  std::array<std::int8_t, kMaxBlock / 32> minimums{};  ///< One per 32 elements, if any.
  std::array<std::int8_t, kMaxBlock> q{};
};

/// The 16-bit number in the bytes at `at` and at + 1, low byte first.
constexpr std::uint16_t stored_u16(std::span<const std::byte> bytes, std::size_t at) {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[at]) |
                                    (std::to_integer<unsigned>(bytes[at + 1]) << 8));
}

/// Reads the eight scales and minimums of Q4_K and Q5_K, 6 bits each in 12 bytes. The first four
/// scales and minimums are the low six bits of bytes j and j + 4. The others have their low four
/// bits in byte j + 4 and their high two bits in the top bits of the bytes of the first four.
constexpr void read_k_scales(std::span<const std::byte> bytes, WeightBlock& to) {
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(bytes[i]); };
  for (std::size_t j = 0; j < 8; ++j) {
    const unsigned scale = j < 4 ? at(j) & 63U : (at(j + 4) & 15U) | (at(j - 4) >> 6 << 4);
    const unsigned least = j < 4 ? at(j + 4) & 63U : (at(j + 4) >> 4) | (at(j) >> 6 << 4);
    to.scales[j] = static_cast<std::int8_t>(scale);
    to.minimums[j] = static_cast<std::int8_t>(least);
  }
}

/// Unpacks a stored block of format_block_bytes() bytes.
constexpr void read_stored_block(Quant quant, std::span<const std::byte> bytes, WeightBlock& to) {
  const auto at = [&](std::size_t i) { return std::to_integer<int>(bytes[i]); };
  switch (quant) {
    case Quant::kNone:
      return;
    case Quant::kInt8:
      to.scale = stored_u16(bytes, 0);
      for (std::size_t i = 2; i < bytes.size(); ++i) to.q[i - 2] = static_cast<std::int8_t>(at(i));
      return;
    case Quant::kInt4:  // In each run of 32 elements, i and i + 16 share byte i.
      to.scale = stored_u16(bytes, 0);
      for (std::size_t i = 0; i + 2 < bytes.size(); ++i) {
        const std::size_t first = i / 16 * 32 + i % 16;
        to.q[first] = static_cast<std::int8_t>((at(i + 2) & 15) - 8);
        to.q[first + 16] = static_cast<std::int8_t>((at(i + 2) >> 4) - 8);
      }
      return;
    case Quant::kQ4K:
    case Quant::kQ5K: {
      // In each run of 64 elements, i and i + 32 share a byte for their low four bits. In Q5_K 32
      // bytes lie before these: bit j of byte i is the fifth bit of element i of run j of 32.
      to.scale = stored_u16(bytes, 0);
      to.minimum = stored_u16(bytes, 2);
      read_k_scales(bytes.subspan(4, 12), to);
      const bool five = quant == Quant::kQ5K;
      const auto fifth = [&](std::size_t element) {
        return five ? (at(16 + element % 32) >> (element / 32) & 1) << 4 : 0;
      };
      const std::size_t low = five ? 48 : 16;
      for (std::size_t i = 0; i < 128; ++i) {
        const std::size_t first = i / 32 * 64 + i % 32, second = first + 32;
        to.q[first] = static_cast<std::int8_t>((at(low + i) & 15) | fifth(first));
        to.q[second] = static_cast<std::int8_t>((at(low + i) >> 4) | fifth(second));
      }
      return;
    }
    case Quant::kQ6K:
      // Two halves of four runs of 32 elements. In each half the low four bits of runs r and r + 2
      // share 32 bytes, and the two high bits of all four runs share another 32 bytes.
      to.scale = stored_u16(bytes, 208);
      for (std::size_t i = 0; i < 16; ++i) to.scales[i] = static_cast<std::int8_t>(at(192 + i));
      for (std::size_t i = 0; i < 256; ++i) {
        const std::size_t half = i / 128, run = i % 128 / 32, place = i % 32;
        const int low = (at(half * 64 + run % 2 * 32 + place) >> (run / 2 * 4)) & 15;
        const int high = (at(128 + half * 32 + place) >> (run * 2)) & 3;
        to.q[i] = static_cast<std::int8_t>((low | (high << 4)) - 32);
      }
      return;
  }
}

/// Decodes the first values.size() values of a block exactly as the format defines: products and
/// differences are rounded to f32 in the order of its definition.
constexpr void decode_block(Quant quant, const WeightBlock& block, std::span<float> values) {
  const float scale = f32_from_f16(block.scale), minimum = f32_from_f16(block.minimum);
  const FormatInfo& format = format_info(quant);
  const auto steps = static_cast<std::size_t>(format.scale_steps);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto q = static_cast<float>(block.q[i]);
    if (steps == 0) {
      values[i] = scale * q;
      continue;
    }
    const float step = scale * static_cast<float>(block.scales[i / steps]);
    values[i] = step * q;
    if (format.minimums) {
      values[i] -= minimum * static_cast<float>(block.minimums[i / steps]);
    }
  }
}

}  // namespace volta
