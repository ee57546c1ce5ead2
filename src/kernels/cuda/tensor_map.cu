// Tensor maps are made on the host by a function of the driver. It is looked up at run time, so
// that nothing links to the driver's library, which machines without a GPU lack.
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda {

namespace {

// cuTensorMapEncodeTiled as of CUDA 12.0.
using EncodeTiled = CUresult(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                             const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                             const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                             CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

EncodeTiled* find_encode_tiled() {
  constexpr unsigned kVersion = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             kVersion, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  // SAFETY: the driver returns the function of this name and version, whose type is above.
  return reinterpret_cast<EncodeTiled*>(function);
}

// Null if the driver lacks it.
EncodeTiled* encode_tiled() {
  static EncodeTiled* const function = find_encode_tiled();
  return function;
}

// The distance of layers must be valid even if there is only one.
std::int64_t layer_stride(const MappedMatrix& matrix) {
  return matrix.layers == 1 ? matrix.rows * matrix.stride : matrix.layer_stride;
}

}  // namespace

bool can_map(const MappedMatrix& matrix) {
  if (encode_tiled() == nullptr) return false;
  constexpr std::int64_t kMostElements = std::int64_t{1} << 30;
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 39;  // The map has 40 bits.
  constexpr std::int64_t kUnit = 16;
  if (matrix.type != DType::kBF16 && matrix.type != DType::kF16) return false;
  for (const std::int64_t size : {matrix.columns, matrix.rows, matrix.layers}) {
    if (size < 1 || size > kMostElements) return false;
  }
  const auto usable = [](std::int64_t stride) {
    return stride > 0 && stride < kMostBytes / 2 && stride * 2 % kUnit == 0;
  };
  return is_aligned(matrix.data, kUnit) && usable(matrix.stride) && usable(layer_stride(matrix));
}

cudaError_t make_tensor_map(const MappedMatrix& matrix, int box_rows, CUtensorMap& map) {
  EncodeTiled* const encode = encode_tiled();
  if (encode == nullptr) return cudaErrorNotSupported;
  constexpr cuuint32_t kRank = 3;
  constexpr cuuint64_t kElementBytes = 2;
  const cuuint64_t sizes[kRank] = {static_cast<cuuint64_t>(matrix.columns),
                                   static_cast<cuuint64_t>(matrix.rows),
                                   static_cast<cuuint64_t>(matrix.layers)};
  const cuuint64_t strides[kRank - 1] = {
      static_cast<cuuint64_t>(matrix.stride) * kElementBytes,
      static_cast<cuuint64_t>(layer_stride(matrix)) * kElementBytes};
  const cuuint32_t box[kRank] = {static_cast<cuuint32_t>(kBoxRowBytes / kElementBytes),
                                 static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t every_element[kRank] = {1, 1, 1};
  const CUresult result =
      encode(&map,
             matrix.type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                         : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             kRank, const_cast<void*>(matrix.data), sizes, strides, box, every_element,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

bool can_map_strips(const void* data, DType type, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 30, kBlock = 64;
  return encode_tiled() != nullptr && (type == DType::kBF16 || type == DType::kF16) && rows > 0 &&
         rows <= kMostElements && columns > 0 && columns <= kMostElements &&
         columns % kBlock == 0 && is_aligned(data, 16);
}

// The matrix as [columns / 64, rows, 64], whose layers are 64 columns apart.
cudaError_t make_strip_map(const void* data, DType type, std::int64_t rows, std::int64_t columns,
                           CUtensorMap& map) {
  if (!can_map_strips(data, type, rows, columns)) return cudaErrorNotSupported;
  constexpr cuuint32_t kRank = 3, kBlock = 64;
  constexpr cuuint64_t kElementBytes = 2;
  const cuuint64_t sizes[kRank] = {kBlock, static_cast<cuuint64_t>(rows),
                                   static_cast<cuuint64_t>(columns) / kBlock};
  const cuuint64_t strides[kRank - 1] = {static_cast<cuuint64_t>(columns) * kElementBytes,
                                         kBlock * kElementBytes};
  const cuuint32_t box[kRank] = {kBlock, kStripRows, kStripColumns / kBlock};
  const cuuint32_t every_element[kRank] = {1, 1, 1};
  const CUresult result = encode_tiled()(
      &map,
      type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      kRank, const_cast<void*>(data), sizes, strides, box, every_element,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace volta::cuda
