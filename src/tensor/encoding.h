// Encoding: how the elements of a matrix lie in memory. Row by row everywhere but in the weights of
// a model that only runs: those are kept in the order in which a device's kernels read them.
// C++20-clean, so that kernels of every backend can use it.
#pragma once

#include <cstdint>

#include "base/arithmetic.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/weight_format.h"

namespace [[gnu::visibility("default")]] volta {

enum class Packing : std::uint8_t {
  kRows,    ///< Row-major, any rank.
  kPanels,  ///< A matrix as panels of columns, for matrix products; see Encoding.
};

/// A weight b[K, N] in panels: columns [p * width, (p + 1) * width) of all K rows lie together, row
/// after row, and panel follows panel; the last one is filled up with zeros. With `group` > 1 that
/// many rows lie interleaved, column by column, as instructions that add up neighbours want it, and
/// K is filled up with zeros to whole groups.
///
/// Quantised, K is filled up to whole blocks. In rows, a column of b is its blocks in order, each
/// as its format stores it (tensor/weight_format.h), and columns follow each other. In panels, a
/// block of all columns comes first, then the next; how one is arranged is up to the device whose
/// panels they are (on the CPU: kernels/cpu/quant.h).
struct Encoding {
  /// Panels of Q4_K hold the scales and minimums of 6 bits as bytes: so many more a block.
  static constexpr std::int64_t kWiderScales = 4;

  Packing packing = Packing::kRows;
  bool transposed = false;  ///< The tensor is [N, K] and its panels hold its transpose, b[K, N].
  std::int32_t width = 0;   ///< Columns a panel.
  std::int32_t group = 1;   ///< Rows that lie interleaved.
  Quant quant = Quant::kNone;
  std::int32_t block = 0;  ///< Elements of a block of integers.

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
  constexpr std::int64_t block_bytes() const {
    const bool bytes_for_scales = packing == Packing::kPanels && quant == Quant::kQ4K;
    return format_block_bytes(quant, block) + (bytes_for_scales ? kWiderScales : 0);
  }
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
