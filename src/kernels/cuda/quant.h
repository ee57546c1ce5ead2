// Products and look-ups of weights that consist of small integers in blocks (tensor/encoding.h,
// Packing::kRows), for the launchers of MatMul and Embedding. C++20-clean.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/cuda.h"

namespace volta::cuda {

/// c = activation(a b + bias) + residual for a quantised b in rows. Each row of a is first rounded
/// to int8 (ops/op.h, MatMul). a may have any float type, c and the residual too. The workspace has
/// matmul_quantized_workspace() bytes.
cudaError_t matmul_quantized(const MatMul& op, const Args& args, const Context& context);

struct QuantProducts;
/// Adds a MatMul to the products that will share a launch. Returns false and changes nothing if it
/// cannot join them: it must have the left operand of those before it, with few rows, and a weight
/// of the same format and block size. The rounded rows are kept in the workspace of the product
/// that was added last.
bool add_quantized(const MatMul& op, const Args& args, bool steady, QuantProducts& products);
/// Rounds the rows, once, and multiplies. The bits are those of matmul_quantized().
cudaError_t matmul_quantized(const QuantProducts& products, const Context& context);

/// The scratch bytes that matmul_quantized() needs.
std::int64_t matmul_quantized_workspace(const MatMul& op, const ArgShapes& shapes,
                                        const Context& context);

/// Rows `ids` of a quantised table, decoded and rounded to the output's type. The table is the
/// transposed b of a product, in rows. An id out of range reads as zeros and is reported.
cudaError_t embedding_quantized(const Args& args, const Context& context);

}  // namespace volta::cuda
