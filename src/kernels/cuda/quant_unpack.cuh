// A quantised b unpacked into bytes and f32 factors, for products of many rows: where it lies in a
// workspace, and the launcher of the kernel that unpacks (quant_unpack.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda.h"

namespace volta::cuda {

struct QuantProduct;

/// Columns are unpacked in multiples of this many.
inline constexpr int kUnpackedColumns = 64;

/// Columns [first, first + columns) of b. Those behind b's last one are copies of it. Integers lie
/// as those of QuantRows do; rows of factors have the columns side by side.
struct UnpackedWeight {
  std::int64_t first = 0;
  std::int64_t columns = 0;
  std::int8_t* q = nullptr;  ///< [columns, stride of the rows of a]
  /// Of b's blocks, or the integer scales of their sub-blocks: [blocks or sub-blocks, columns].
  float* scale = nullptr;
  float* minimum =
      nullptr;              ///< [groups, columns]: the integer minimums, in formats that have them.
  float* factor = nullptr;  ///< [blocks, 2, columns]: scale and minimum of blocks with sub-blocks.
};

/// Divides a workspace among the arrays. If all columns of b would not fit into the L2 cache, the
/// arrays have room for some of them, and b is unpacked in several parts. `memory` is 256-byte
/// aligned.
UnpackedWeight place_unpacked(const QuantProduct& product, std::byte* memory);
/// The size of that workspace in bytes.
std::int64_t unpacked_bytes(const QuantProduct& product);

/// Unpacks columns from `to.first` on.
cudaError_t unpack_weight(const QuantProduct& product, const UnpackedWeight& to,
                          const Context& context);

}  // namespace volta::cuda
