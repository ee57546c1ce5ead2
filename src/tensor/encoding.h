// Encoding: how the elements of a matrix lie in memory. Row by row everywhere but in the weights of
// a model that only runs: those are kept in the order in which a device's kernels read them.
// C++20-clean, so that kernels of every backend can use it.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace volta {

enum class Packing : std::uint8_t {
  kRows,    ///< Row-major, any rank.
  kPanels,  ///< A matrix as panels of columns, for matrix products; see Encoding.
};

/// A weight b[K, N] in panels: columns [p * width, (p + 1) * width) of all K rows lie together, row
/// after row, and panel follows panel; the last one is filled up with zeros. With `group` > 1 that
/// many rows lie interleaved, column by column, as instructions that add up neighbours want it, and
/// K is filled up with zeros to whole groups.
struct Encoding {
  Packing packing = Packing::kRows;
  bool transposed = false;  ///< The tensor is [N, K] and its panels hold its transpose, b[K, N].
  std::int32_t width = 0;   ///< Columns a panel.
  std::int32_t group = 1;   ///< Rows that lie interleaved.

  constexpr bool operator==(const Encoding&) const = default;
  constexpr bool plain() const { return packing == Packing::kRows; }

  /// The sizes of b for a tensor of this shape and encoding.
  constexpr std::int64_t k(const Shape& shape) const { return shape[transposed ? 1 : 0]; }
  constexpr std::int64_t n(const Shape& shape) const { return shape[transposed ? 0 : 1]; }
  constexpr std::int64_t panels(const Shape& shape) const { return (n(shape) + width - 1) / width; }
  /// K filled up to whole groups.
  constexpr std::int64_t padded_k(std::int64_t k) const { return (k + group - 1) / group * group; }
  /// Where element (row, column) of a b with K = k lies, in elements.
  constexpr std::int64_t at(std::int64_t k, std::int64_t row, std::int64_t column) const {
    return (column / width * padded_k(k) + row / group * group) * width + column % width * group +
           row % group;
  }
};

/// The bytes a tensor takes.
constexpr std::int64_t encoded_bytes(DType dtype, const Shape& shape, const Encoding& encoding) {
  if (encoding.plain()) return shape.elements() * dtype_size(dtype);
  return encoding.panels(shape) * encoding.padded_k(encoding.k(shape)) * encoding.width *
         dtype_size(dtype);
}

}  // namespace volta
