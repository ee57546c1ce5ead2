// Rows of a matrix product's a as small integers, for a b of small integers: how they lie. The
// rounding is in quant_rows.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu.h"
#include "tensor/encoding.h"

namespace volta::cpu {

/// Elements that are looked at together, and rounded once more where they are out of line with
/// their block; all blocks are whole groups.
inline constexpr std::int64_t kRowGroup = 32;

/// Integers of some rows with a scale a block; all pointers at the first row.
struct IntegerRows {
  std::int8_t* q;        ///< [rows, stride], of QuantRows
  float* scale;          ///< [rows, scales]
  std::int32_t* offset;  ///< [rows, offsets]: what an inner sum begins at, see matmul_quant.cc.
  std::int64_t scales, offsets;

  IntegerRows from(std::int64_t row, std::int64_t stride) const {
    return {q + row * stride, scale + row * scales, offset + row * offsets, scales, offsets};
  }
};

/// Some rows: x = whole.scale * whole.q, and where a bit of `rests` says so + rest.scale * rest.q.
struct QuantRows {
  IntegerRows whole;    ///< A scale a block, an offset for every offset_steps() elements.
  IntegerRows rest;     ///< A scale for every 32 elements and an offset for every 32, or
                        ///< offset_steps() if those are fewer; only where there is one.
  std::uint8_t* rests;  ///< [rows, blocks]: bit i stands for elements 32 i to 32 i + 31 of a block.
  std::int64_t stride;  ///< Bytes from row to row of integers.
  std::int64_t blocks;  ///< A row.
  std::int64_t block;   ///< Elements: 32 to 256, a multiple of b's blocks.

  QuantRows from(std::int64_t row) const {
    return {whole.from(row, stride),
            rest.from(row, stride),
            rests + row * blocks,
            stride,
            blocks,
            block};
  }
};

/// Elements of a row of k that share a scale, for a b of this encoding: b's blocks, which with 4
/// bits are joined to 128 or 64 where K allows.
std::int64_t row_block(const Encoding& b, std::int64_t k);

/// Elements that share an offset, for a b of this encoding: b's block, or the elements that share
/// an integer scale of it.
std::int64_t offset_steps(const Encoding& b);

/// The bytes that `rows` rows of k elements take, for a b of this encoding.
std::int64_t quant_rows_bytes(const Encoding& b, std::int64_t rows, std::int64_t k);

/// Where those rows lie in so many bytes, aligned to 64.
QuantRows place_quant_rows(const Encoding& b, std::int64_t rows, std::int64_t k, std::byte* memory);

/// Rounds `rows` rows of k elements at `x`, of type `type`, for a b of this encoding.
void quantize_rows(const Context& context, const Encoding& b, DType type, const void* x,
                   std::int64_t rows, std::int64_t k, const QuantRows& to);

}  // namespace volta::cpu
