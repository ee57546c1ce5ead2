// Rows of 16-bit matrices at distances that the bulk copy engine can read.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/cuda.h"

namespace volta::cuda {

/// The distance of rows in the copy: 128 bytes, so that no line of memory belongs to two rows.
inline constexpr std::int64_t kCopyStride = 64;

/// Copies [rows, columns] of 16 bits at `from`, without space between the rows, to rows that begin
/// at multiples of kCopyStride elements. `to` is a multiple of 16 bytes. What lies between the rows
/// of the copy has no value.
cudaError_t copy_rows_apart(const void* from, void* to, std::int64_t rows, std::int64_t columns,
                            const Context& context);

}  // namespace volta::cuda
