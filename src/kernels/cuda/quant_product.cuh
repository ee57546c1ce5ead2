// A product with a quantised b as its kernels see it, what they share, and their launchers.
//
// With a's blocks A, which consist of whole blocks B of b, an element of c is the chain, in order,
//   c = fma(part(A), a's scale of A, c)                  for each A, and after it
//   c = fma(part(group), a's rest scale of it, c)        for each group of A that has a rest.
// Sums within a block B are of integers and exact, and the scales of its parts are applied in
// order:
//   q8, q4             part = fma(sum of B, b's scale of B, part), over the blocks B of A
//   Q4_K, Q5_K, Q6_K   part = fma(sum of sub-block, its integer scale, part), over the sub-blocks,
//                      and then part * b's scale
//   with minimums      plus fma(least, b's minimum, ..), least = fma(minimum of sub-block,
//                      minus the sum of a in it, least)
// This is also the CPU's order. It depends on nothing but K and the encoding, so that neither the
// kernel nor the number of rows changes a bit of a row.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/quant_mma.cuh"
#include "kernels/cuda/quant_rows.cuh"
#include "kernels/cuda/quant_unpack.cuh"
#include "ops/op.h"

namespace volta::cuda {

/// c[m, n] = activation(a b + bias) + residual; m and k are those of the rows.
struct QuantProduct {
  QuantRows a;
  const std::uint8_t* b = nullptr;  ///< n columns of b_blocks blocks.
  Quant quant = Quant::kNone;
  int block = 0;        ///< Elements of a block of b.
  int block_bytes = 0;  ///< Bytes of a block of b.
  int b_per_a = 1;      ///< Blocks of b in a block of a.
  std::int64_t column_bytes = 0;
  std::int64_t bytes = 0;  ///< Of all of b.
  std::int64_t n = 0;
  void* c = nullptr;
  DType out = DType::kF32;
  Activation activation = Activation::kNone;
  const float* bias = nullptr;     ///< f32[n] or null.
  const void* residual = nullptr;  ///< Like c, or null; may be c itself.
};

/// The most rows that launch_few_rows takes per pass over b.
inline constexpr int kFewRows = 16;

/// Products of the same rows with up to three weights of one format and block size, such as those
/// of queries, keys and values.
struct QuantProducts {
  static constexpr int kMost = 3;
  int count = 0;
  QuantProduct each[kMost];
  const void* x = nullptr;  ///< The rows before they are rounded.
  DType x_type = DType::kF32;
  bool steady = false;  ///< No kernel of the plan writes any b: they may be read early.
};

/// Whether launch_few_rows() can compute this product, with m, n and K of at least 1. It cannot if
/// K is so long that b would be read more than twice per kFewRows rows. Only sizes and format are
/// used.
bool few_rows_apply(const QuantProduct& product);
/// For few rows: b is read once or twice per kFewRows rows. The rows are rounded already.
cudaError_t launch_few_rows(const QuantProducts& products, const Context& context);
/// For any number of rows: columns [b.first, b.first + b.columns) of c.
cudaError_t launch_row_tiles(const QuantProduct& product, const UnpackedWeight& b,
                             const Context& context);

/// Block `block` of column `column` of b.
__device__ inline const std::uint8_t* block_of(const QuantProduct& p, std::int64_t column,
                                               std::int64_t block) {
  return p.b + column * p.column_bytes + block * p.block_bytes;
}

// For few rows, b is copied to shared memory in pieces of 16 bytes at multiples of 16, because its
// blocks begin at any even address. The first byte of a copy then lies skipped_bytes() behind the
// first piece's.
constexpr int kCopied = 16;

__device__ inline int skipped_bytes(const std::uint8_t* from) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(from) % kCopied);
}
/// The pieces that `bytes` bytes may touch.
constexpr int copied_pieces(int bytes) { return (kCopied - 1 + bytes + kCopied - 1) / kCopied; }

/// The part of c that a group of a block of b adds; see above. `sums` are the exact sums of its
/// sub-blocks (all of the group if there is one), `less` is minus the sum of a.
// SAFETY: the block is a whole block of b.
template <Quant kQuant>
__device__ inline float group_part(const std::uint8_t* block, int group, const int (&sums)[2],
                                   float less) {
  using Format = BlockFormat<kQuant>;
  const float scale = block_scale<kQuant>(block);
  const auto first = static_cast<float>(sums[0]);
  if constexpr (!Format::kSubScales) {
    return __fmul_rn(first, scale);
  } else if constexpr (Format::kMinimums) {
    const SubScale sub = six_bit_scale(block, group);
    const float part = __fmul_rn(fmaf(first, static_cast<float>(sub.scale), 0.0f), scale);
    const float least = fmaf(static_cast<float>(sub.minimum), less, 0.0f);
    return fmaf(least, block_minimum(block), part);
  } else {
    float part = fmaf(first, static_cast<float>(byte_scale(block, 2 * group)), 0.0f);
    part = fmaf(static_cast<float>(sums[1]), static_cast<float>(byte_scale(block, 2 * group + 1)),
                part);
    return __fmul_rn(part, scale);
  }
}

template <typename T>
__device__ inline void store_result(const QuantProduct& p, std::int64_t at, float x) {
  if (p.residual != nullptr) x = __fadd_rn(x, to_f32(static_cast<const T*>(p.residual)[at]));
  static_cast<T*>(p.c)[at] = from_f32<T>(x);
}

/// Finishes a sum and stores it. Additions are explicit, so that no kernel fuses them with the
/// products of an activation.
// SAFETY: the residual may be c itself; the thread that writes an element has read it.
__device__ inline void finish(const QuantProduct& p, std::int64_t row, std::int64_t column,
                              float x) {
  if (p.bias != nullptr) x = __fadd_rn(x, p.bias[column]);
  x = apply_unary(p.activation, 1.0f, x);
  const std::int64_t at = row * p.n + column;
  switch (p.out) {
    case DType::kBF16:
      return store_result<bf16>(p, at, x);
    case DType::kF16:
      return store_result<f16>(p, at, x);
    default:
      return store_result<float>(p, at, x);
  }
}

/// Calls body(constant) with the format as a constant of its type, and returns its result.
template <typename Body>
cudaError_t with_format(Quant quant, const Body& body) {
  switch (quant) {
    case Quant::kInt8:
      return body(std::integral_constant<Quant, Quant::kInt8>());
    case Quant::kInt4:
      return body(std::integral_constant<Quant, Quant::kInt4>());
    case Quant::kQ4K:
      return body(std::integral_constant<Quant, Quant::kQ4K>());
    case Quant::kQ5K:
      return body(std::integral_constant<Quant, Quant::kQ5K>());
    case Quant::kQ6K:
      return body(std::integral_constant<Quant, Quant::kQ6K>());
    case Quant::kNone:
      break;
  }
  return cudaErrorInvalidValue;
}

/// Lets a kernel use `shared` bytes of dynamic shared memory.
template <typename Kernel>
cudaError_t allow_shared(Kernel* kernel, std::size_t shared) {
  constexpr std::size_t kWithoutAsking = 48 * 1024;
  if (shared <= kWithoutAsking) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(shared));
}
/// Launches a kernel with `shared` bytes of dynamic shared memory.
template <typename... Parameters>
cudaError_t launch_with(void (*kernel)(Parameters...), std::int64_t blocks, int threads,
                        std::size_t shared, const Context& context, const Parameters&... values) {
  if (blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  const cudaError_t error = allow_shared(kernel, shared);
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared, context.stream>>>(
      values...);
  return launch_error();
}

}  // namespace volta::cuda
