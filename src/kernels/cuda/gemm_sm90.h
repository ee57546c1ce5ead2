// Products of 16-bit matrices with Hopper's own instructions: asynchronous products of a group of
// four warps (wgmma), and copies by the bulk copy engine (TMA).
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda {

/// Whether gemm_sm90 can compute this product and is worth it. Depends on sizes, types and
/// addresses. The answer never changes a bit of c: gemm_sm90 adds in the order that gemm.h
/// promises.
bool gemm_sm90_applies(const Gemm& gemm, const Context& context);

/// All that gemm.h describes: any transposition, a batch or pieces of K, every epilogue. Needs
/// gemm_sm90_applies(gemm, context).
cudaError_t gemm_sm90(const Gemm& gemm, const Context& context);

// The rest is for gemm_sm90 itself: the kernels by type and columns of a tile, and the operands as
// the copy engine sees them.
cudaError_t gemm_sm90_bf16_128(const Gemm& gemm, const Context& context);
cudaError_t gemm_sm90_bf16_256(const Gemm& gemm, const Context& context);
cudaError_t gemm_sm90_f16_128(const Gemm& gemm, const Context& context);
cudaError_t gemm_sm90_f16_256(const Gemm& gemm, const Context& context);

/// `width` is the number of rows of a, or columns of b.
inline MappedMatrix mapped_operand(const GemmOperand& operand, std::int64_t width,
                                   const Gemm& gemm) {
  return {.data = operand.data,
          .type = operand.type,
          .columns = operand.along_k ? gemm.k : width,
          .rows = operand.along_k ? width : gemm.k,
          .layers = gemm.pieces ? 1 : gemm.parts,
          .stride = operand.stride,
          .layer_stride = operand.batch_stride};
}
inline MappedMatrix mapped_a(const Gemm& gemm) { return mapped_operand(gemm.a, gemm.m, gemm); }
inline MappedMatrix mapped_b(const Gemm& gemm) { return mapped_operand(gemm.b, gemm.n, gemm); }

}  // namespace volta::cuda
