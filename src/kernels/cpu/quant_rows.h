// The layout of rows of a as small integers, for a matrix product with a b of small integers. The
// rounding is in quantize_rows.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu.h"
#include "tensor/encoding.h"

namespace volta::cpu {

/// Elements that are examined together. A group that is much larger than the quietest one of its
/// block is rounded twice. All blocks consist of whole groups.
inline constexpr std::int64_t kRowGroup = 32;

/// The integers of some rows with a scale per block; all pointers are at the first row.
struct IntegerRows {
  std::int8_t* q;        ///< See QuantRows.
  float* scale;          ///< [rows, scales]
  std::int32_t* offset;  ///< [rows, offsets]: what an inner sum begins at, see matmul_quant.cc.
  std::int64_t scales, offsets;

  /// From `row` on, whose integers begin `bytes` further on.
  IntegerRows from(std::int64_t row, std::int64_t bytes) const {
    return {q + bytes, scale + row * scales, offset + row * offsets, scales, offsets};
  }
};

/// Some rows: x = whole.scale * whole.q, plus rest.scale * rest.q where a bit of `rests` is set.
/// Rows of integers are `stride` bytes apart. For AMX, those of `whole` are in tiles instead: 16
/// rows of 64 elements, the next 64 elements of the same rows, and so on.
struct QuantRows {
  /// The bytes from 64 integers of a row to the next 64, one after the other or in tiles.
  static constexpr std::int64_t kChunk = 64, kTileChunk = 16 * kChunk;

  IntegerRows whole;    ///< A scale per block, and an offset per offset_steps() elements.
  IntegerRows rest;     ///< A scale per 32 elements, and an offset per 32, or per offset_steps() if
                        ///< those are fewer. Valid only where there is a rest.
  std::uint8_t* rests;  ///< [rows, blocks]: bit i stands for elements 32 i to 32 i + 31 of a block.
  std::uint8_t* wide;   ///< [rows]: whether the products of a sub-block of `whole` with integers of
                        ///< b may have a sum of more than 16 bits. False if b has no sub-blocks.
  std::int64_t stride;  ///< Bytes from row to row of integers.
  std::int64_t blocks;  ///< Per row.
  std::int64_t block;   ///< Elements: 32 to 256, a multiple of b's blocks.
  std::int64_t chunk;   ///< kChunk or kTileChunk.

  /// The place of element k of the first row in whole.q; k is a multiple of 16.
  std::int64_t at(std::int64_t k) const { return k / kChunk * chunk + k % kChunk; }
  /// In tiles: the bytes from 16 rows to the next 16.
  std::int64_t sixteen_rows() const { return 16 * (stride - kChunk); }
  /// These rows from `row` on. In tiles, they begin with a multiple of 16 rows.
  QuantRows from(std::int64_t row) const {
    const std::int64_t bytes =
        chunk == kChunk ? row * stride : row / 16 * sixteen_rows() + row % 16 * kChunk;
    return {whole.from(row, bytes),
            rest.from(row, row * stride),
            rests + row * blocks,
            wide + row,
            stride,
            blocks,
            block,
            chunk};
  }
};

/// Elements that share a scale, in a row of k elements, for a b of this encoding: those of b's
/// block. With 4 bits, blocks are joined to 128 or 64 elements if K allows.
std::int64_t row_block(const Encoding& b, std::int64_t k);

/// Elements that share an offset, for a b of this encoding: those of b's block, or those that share
/// an integer scale in it.
std::int64_t offset_steps(const Encoding& b);

/// The bytes that `rows` rows of k elements take, for a b of this encoding.
std::int64_t quant_rows_bytes(const Encoding& b, std::int64_t rows, std::int64_t k);

/// The places of those rows in `memory`, which has quant_rows_bytes() and is aligned to 64, one
/// after the other or in tiles.
QuantRows place_quant_rows(const Encoding& b, std::int64_t rows, std::int64_t k, bool tiles,
                           std::byte* memory);

/// Rounds `rows` rows of k elements at `x`, of type `type`, for a b of this encoding.
void quantize_rows(const Context& context, const Encoding& b, DType type, const void* x,
                   std::int64_t rows, std::int64_t k, const QuantRows& to);

}  // namespace volta::cpu
