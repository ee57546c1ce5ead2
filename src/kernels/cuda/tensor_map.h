// Tensor maps: descriptions of matrices in global memory for the bulk copy engine of Hopper and
// later GPUs (TMA). The engine copies boxes of a matrix into shared memory. Elements of a box that
// lie outside of the matrix become zeros.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "tensor/dtype.h"

namespace volta::cuda {

/// The bytes of one row of a box.
inline constexpr int kBoxRowBytes = 128;

/// A stack of matrices [layers, rows, columns] of bf16 or f16.
struct MappedMatrix {
  const void* data = nullptr;
  DType type = DType::kBF16;
  std::int64_t columns = 0, rows = 0, layers = 1;
  std::int64_t stride = 0;        ///< Elements from one row to the next.
  std::int64_t layer_stride = 0;  ///< Elements from one layer to the next; unused with one layer.
};

/// Whether maps can be made and the engine can read the matrix: the address and the distances in
/// bytes are multiples of 16, and no size is 0 or larger than 2^30.
bool can_map(const MappedMatrix& matrix);

/// Makes the map for boxes of one layer, box_rows (at most 256) rows and 64 columns. In shared
/// memory a box is box_rows rows of 128 bytes; the engine swizzles it: of row r, the 16 bytes at
/// 16 i lie at 16 (i ^ r % 8). The box must begin at a multiple of 1,024 bytes. The coordinates of
/// a copy are {column, row, layer}; the engine refuses columns that are not multiples of 16 bytes.
/// Needs can_map(matrix). Nothing is copied to the GPU: a launch takes the map as a
/// __grid_constant__ parameter.
cudaError_t make_tensor_map(const MappedMatrix& matrix, int box_rows, CUtensorMap& map);

/// The sizes of a box of make_strip_map().
inline constexpr int kStripRows = 8, kStripColumns = 256,
                     kStripBytes = kStripRows * kStripColumns * 2;

/// Makes a map of a matrix [rows, columns] of bf16 or f16 for boxes of 8 rows and 256 columns. In
/// shared memory a box is four blocks of 64 columns, each 8 rows of 128 bytes, swizzled as above.
/// The coordinates of a copy are {0, row, column / 64}. The columns are a multiple of 64 and the
/// address is one of 16. Otherwise, and if the driver lacks the function: cudaErrorNotSupported.
cudaError_t make_strip_map(const void* data, DType type, std::int64_t rows, std::int64_t columns,
                           CUtensorMap& map);
/// Whether make_strip_map() will do it.
bool can_map_strips(const void* data, DType type, std::int64_t rows, std::int64_t columns);

}  // namespace volta::cuda
