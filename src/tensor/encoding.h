// Encoding: how the elements of a matrix lie in memory. Row by row everywhere but in the weights of
// a model that only runs: those are kept in the order in which a device's kernels read them.
// C++20-clean, so that kernels of every backend can use it.
#pragma once

#include <cstdint>

#include "base/arithmetic.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace volta {

enum class Packing : std::uint8_t {
  kRows,    ///< Row-major, any rank.
  kPanels,  ///< A matrix as panels of columns, for matrix products; see Encoding.
};

/// Weights as small integers: blocks of elements along K share a scale of type f16, and an element
/// is scale * q.
enum class Quant : std::uint8_t {
  kNone,
  kInt8,  ///< q in [-127, 127], scale = largest magnitude / 127.
  kInt4,  ///< q in [-8, 7].
};
constexpr std::int64_t quant_bits(Quant quant) { return quant == Quant::kInt4 ? 4 : 8; }

/// A weight b[K, N] in panels: columns [p * width, (p + 1) * width) of all K rows lie together, row
/// after row, and panel follows panel; the last one is filled up with zeros. With `group` > 1 that
/// many rows lie interleaved, column by column, as instructions that add up neighbours want it, and
/// K is filled up with zeros to whole groups.
///
/// Quantised, K is filled up to whole blocks. In rows, a column of b is its blocks in order, each a
/// scale and then its q: bytes, or for every 32 of them 16 bytes, byte i holding q[i] + 8 in its
/// low half and q[i + 16] + 8 in its high one; columns follow each other. (These are the formats
/// Q8_0 and Q4_0 of GGUF when blocks are of 32.) In panels, a block of all columns comes first,
/// then the next: q + 128 by groups of four rows (or, for every 32 rows, four groups of rows i in
/// the low halves of the bytes and i + 16 in the high ones), then the columns' scales.
struct Encoding {
  Packing packing = Packing::kRows;
  bool transposed = false;  ///< The tensor is [N, K] and its panels hold its transpose, b[K, N].
  std::int32_t width = 0;   ///< Columns a panel.
  std::int32_t group = 1;   ///< Rows that lie interleaved.
  Quant quant = Quant::kNone;
  std::int32_t block = 0;  ///< Elements that share a scale; a multiple of 32.

  constexpr bool operator==(const Encoding&) const = default;
  /// Shows a visitor every member with its name, as the ops do (ops/op.h).
  static constexpr void fields(auto& encoding, auto&& visit) {
    const bool panels = encoding.packing == Packing::kPanels;
    const bool quantized = encoding.quant != Quant::kNone;
    visit("packing", encoding.packing);
    visit("transposed", encoding.transposed);
    visit("width", encoding.width, panels);
    visit("group", encoding.group, panels && encoding.group != 1);
    visit("quant", encoding.quant, quantized);
    visit("block", encoding.block, quantized);
  }
  constexpr bool plain() const { return packing == Packing::kRows && quant == Quant::kNone; }
  constexpr bool quantized() const { return quant != Quant::kNone; }

  /// The sizes of b for a tensor of this shape and encoding.
  constexpr std::int64_t k(const Shape& shape) const { return shape[transposed ? 1 : 0]; }
  constexpr std::int64_t n(const Shape& shape) const { return shape[transposed ? 0 : 1]; }
  constexpr std::int64_t panels(const Shape& shape) const { return ceil_div(n(shape), width); }
  /// K filled up to whole groups.
  constexpr std::int64_t padded_k(std::int64_t k) const { return round_up(k, group); }
  /// Where element (row, column) of a b with K = k lies, in elements; not quantised.
  constexpr std::int64_t at(std::int64_t k, std::int64_t row, std::int64_t column) const {
    return (column / width * padded_k(k) + row / group * group) * width + column % width * group +
           row % group;
  }
  /// Quantised: blocks a column, and the bytes of one with its scale.
  constexpr std::int64_t blocks(std::int64_t k) const { return ceil_div(k, block); }
  constexpr std::int64_t block_bytes() const { return block * quant_bits(quant) / 8 + 2; }
};

/// The bytes a tensor takes.
constexpr std::int64_t encoded_bytes(DType dtype, const Shape& shape, const Encoding& encoding) {
  if (encoding.plain()) return shape.elements() * dtype_size(dtype);
  const bool panels = encoding.packing == Packing::kPanels;
  if (encoding.quantized()) {
    const std::int64_t columns =
        panels ? encoding.panels(shape) * encoding.width : encoding.n(shape);
    return columns * encoding.blocks(encoding.k(shape)) * encoding.block_bytes();
  }
  return encoding.panels(shape) * encoding.padded_k(encoding.k(shape)) * encoding.width *
         dtype_size(dtype);
}

/// What the weights of a model that only runs are to be kept as, where they are not narrower
/// already: rounded to `dtype`, or to integers.
struct WeightFormat {
  DType dtype = DType::kF32;
  Quant quant = Quant::kNone;
  constexpr bool operator==(const WeightFormat&) const = default;
};

}  // namespace volta
