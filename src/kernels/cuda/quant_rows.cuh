// Rows of a as small integers, for a product with a b of small integers: where they lie in a
// workspace, and the launcher of the kernel that rounds them (quant_rows.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda.h"

namespace volta::cuda {

/// m rows of k elements: x = scale * q of its block, plus rest_scale * rest_q of its group if its
/// bit in `rests` is set. Elements are in groups of 32; blocks consist of whole groups. Of the
/// integers of a group, those of thread t (quant_format.cuh) lie at bytes 8 t to 8 t + 7: first its
/// word `low`, then `high`. Arrays of factors have the rows of one block or group side by side.
struct QuantRows {
  std::int64_t m = 0;
  std::int64_t k = 0;
  std::int64_t stride = 0;         ///< Bytes per row of integers: k padded to whole blocks.
  std::int64_t blocks = 0;         ///< Per row.
  int block = 0;                   ///< Elements: 32 to 256, a multiple of b's blocks.
  std::int8_t* q = nullptr;        ///< [m, stride]
  float* scale = nullptr;          ///< [blocks, m]; NaN if an element of the block is not finite.
  std::uint32_t* rests = nullptr;  ///< [blocks, m]: bit i stands for group i of the block.
  std::int8_t* rest_q = nullptr;   ///< [m, stride]; like all rests, valid where the bit is set.
  float* rest_scale = nullptr;     ///< [groups, m]
  float* less = nullptr;       ///< [groups, m]: minus the sum of a group's q, for b with minimums.
  float* rest_less = nullptr;  ///< [groups, m]: minus the sum of a group's rest_q, likewise.
};

/// The size in bytes of the arrays q, scale and rests, which follow each other in memory,
/// beginning with q. Each is padded to a multiple of 256 bytes.
std::int64_t quant_rows_front_bytes(const QuantRows& rows);

/// The rows for a b of this encoding, in `memory` (256-byte aligned; null to find out the size).
QuantRows place_quant_rows(const Encoding& b, std::int64_t m, std::int64_t k, std::byte* memory);
/// The bytes that those rows take.
std::int64_t quant_rows_bytes(const Encoding& b, std::int64_t m, std::int64_t k);

/// Rounds the rows at `x`, of a float type.
cudaError_t quantize_rows(DType type, const void* x, const QuantRows& to, const Context& context);

}  // namespace volta::cuda
