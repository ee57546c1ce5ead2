// Encoding: the layout of a matrix in memory. All tensors are row-major, except the weights of a
// model that is not trained: they may be stored in the order in which a device's kernels read them.
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
  kPanels,  ///< A matrix in panels of columns, for matrix products; see Encoding.
};

/// A weight b[K, N] in panels: panel p holds columns [p * width, (p + 1) * width) of all K rows,
/// row after row. The last panel is padded with zeros. With `group` > 1, that many rows are
/// interleaved column by column, for instructions that add up neighbouring elements. K is then
/// padded with zeros to whole groups.
///
/// In a quantised weight K is padded to whole blocks. With Packing::kRows the columns of b follow
/// each other. Each column is its blocks in order, in the layout of the format
/// (tensor/weight_format.h). With kPanels a panel holds the first block of all its columns, then
/// the second blocks, and so on. The device defines the layout inside them (for the CPU:
/// kernels/cpu/quant.h).
struct Encoding {
  /// Additional bytes per block in panels of formats with minimums: their scales and minimums of
  /// 6 bits become bytes.
  static constexpr std::int64_t kWiderScales = 4;

  Packing packing = Packing::kRows;
  bool transposed = false;  ///< The tensor is [N, K] and its panels hold its transpose, b[K, N].
  std::int32_t width = 0;   ///< Columns per panel.
  std::int32_t group = 1;   ///< Interleaved rows.
  Quant quant = Quant::kNone;
  std::int32_t block = 0;  ///< Elements per block of integers.

  constexpr bool operator==(const Encoding&) const = default;
  /// Passes every member with its name to a visitor, as the ops do (ops/op.h).
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
  /// K padded to whole groups.
  constexpr std::int64_t padded_k(std::int64_t k) const { return round_up(k, group); }
  /// For a quantised weight: the blocks per column, and the bytes per block including its scales.
  constexpr std::int64_t blocks(std::int64_t k) const { return ceil_div(k, block); }
  constexpr std::int64_t block_bytes() const {
    const bool bytes_for_scales = packing == Packing::kPanels && format_info(quant).minimums;
    return format_block_bytes(quant, block) + (bytes_for_scales ? kWiderScales : 0);
  }
};

/// The size of a tensor in bytes.
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

/// The format in which the weights of a model that is not trained are stored: rounded to `dtype`,
/// or quantised. Weights that are already narrower are not changed.
struct WeightFormat {
  DType dtype = DType::kF32;
  Quant quant = Quant::kNone;
  constexpr bool operator==(const WeightFormat&) const = default;
};

}  // namespace volta
