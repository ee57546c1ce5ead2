// A product of plain matrices as its kernels see it, and the kernels' launchers. matmul.cu makes
// the Gemm of a MatMul and chooses the kernel.
//
// The choice never changes a bit of the result. In f32 an element of c is one chain of fused
// multiply-adds over k in order, from 0. On 16 bits it is one chain of tensor-core products of 16
// steps of k in order, from 0; the last one is padded with zeros, and none follows it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/cuda.h"
#include "ops/op.h"
#include "tensor/dtype.h"

namespace volta::cuda {

/// a or b: a matrix in rows, or a batch of them.
struct GemmOperand {
  const void* data = nullptr;
  DType type = DType::kF32;
  bool along_k = false;     ///< Neighbours in memory differ in k: a is [M, K], or b is [N, K].
  bool aligned = false;     ///< All rows begin at multiples of the widest load of the kernel.
  std::int64_t stride = 0;  ///< Elements from one row to the next.
  std::int64_t batch_stride = 0;
};

/// c and what is computed on the way to it; see gemm_output.cuh.
struct GemmOutput {
  void* c = nullptr;
  DType type = DType::kF32;
  Activation activation = Activation::kNone;
  bool aligned = false;  ///< Groups of four columns of c, bias and residual may be read at once.
  const float* bias = nullptr;     ///< f32[N] or null.
  const void* residual = nullptr;  ///< Like c, or null; may be c itself.
  std::int64_t n = 0;              ///< Columns.
};

/// c[z] = a[z] b[z] for z in [0, parts). The parts are either the products of a batch, or pieces of
/// K of one product; then part z covers k in [z piece_k, (z + 1) piece_k), and the output is the
/// pieces' sums, f32[parts, M, N].
struct Gemm {
  GemmOperand a, b;
  GemmOutput out;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t parts = 1;
  bool pieces = false;
  std::int64_t piece_k = 0;  ///< K if the parts are products of a batch.
};

/// Rows that the kernels for few rows take at most.
inline constexpr std::int64_t kFewRows16Bit = 64;
inline constexpr std::int64_t kFewRowsF32 = 16;

// a and b have the same type of 16 bits. `aligned` is about groups of 8 elements.
cudaError_t gemm_mma_bf16(const Gemm& gemm, const Context& context);
cudaError_t gemm_mma_bf16_transposed_a(const Gemm& gemm, const Context& context);
cudaError_t gemm_mma_f16(const Gemm& gemm, const Context& context);
cudaError_t gemm_mma_f16_transposed_a(const Gemm& gemm, const Context& context);
/// At most kFewRows16Bit rows, a along k, one part.
cudaError_t gemm_rows_16bit(const Gemm& gemm, const Context& context);

// Any types. `aligned` is about groups of 4 elements (gemm_f32), or of 16 bytes (gemm_rows_f32).
cudaError_t gemm_f32(const Gemm& gemm, const Context& context);
/// At most kFewRowsF32 rows, a along k, one part.
cudaError_t gemm_rows_f32(const Gemm& gemm, const Context& context);

}  // namespace volta::cuda
