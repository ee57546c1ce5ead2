// The end of a matrix product: c = activation(sum + bias) + residual in f32, and one rounding.
// Also the order in which blocks take tiles of c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/arithmetic.h"
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"

namespace volta::cuda {

/// Columns that write_output takes at once.
inline constexpr int kOutputColumns = 4;

// What an epilogue does with sums, in this order: adds the bias, activates, adds the residual,
// rounds. The kernels differ in which sums a lane has and how they are stored, so they call the
// functions below in turn. A new step is one more function here, called in write_output and in
// TileEnd of gemm_sm90_end.cuh. Functions of N neighbours in a row begin at a column that is a
// multiple of N; `count` of them are inside c.

/// The bias of columns [column, column + N). With a count, columns outside of c are zero. Without
/// one, all are inside and the output is aligned.
template <int N>
__device__ inline Vector<float, N> load_bias(const GemmOutput& out, std::int64_t column) {
  return *reinterpret_cast<const Vector<float, N>*>(out.bias + column);
}
template <int N>
__device__ inline Vector<float, N> load_bias(const GemmOutput& out, std::int64_t column,
                                             int count) {
  Vector<float, N> bias = {};
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (j < count) bias.at[j] = out.bias[column + j];
  }
  return bias;
}

template <UnaryKind kKind, int N>
__device__ inline void activate_all(float (&x)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = apply_unary(kKind, 1.0f, x[j]);
}

template <int N>
__device__ inline void activate(Activation activation, float (&x)[N]) {
  switch (activation) {
    case UnaryKind::kRelu:
      return activate_all<UnaryKind::kRelu>(x);
    case UnaryKind::kGelu:
      return activate_all<UnaryKind::kGelu>(x);
    case UnaryKind::kGeluTanh:
      return activate_all<UnaryKind::kGeluTanh>(x);
    case UnaryKind::kSilu:
      return activate_all<UnaryKind::kSilu>(x);
    default:  // infer refuses all others.
      return;
  }
}

/// How many of N elements are inside c. A constant N also says that the output is aligned.
template <int N>
using Whole = std::integral_constant<int, N>;

/// Adds the residual of the N elements at flat index `at`.
template <typename T, int N>
__device__ inline void add_residual(const GemmOutput& out, std::int64_t at, Whole<N>, float* x) {
  const T* residual = static_cast<const T*>(out.residual) + at;
  const auto group = *reinterpret_cast<const Vector<T, N>*>(residual);
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] += to_f32(group.at[j]);
}
template <typename T, int N>
__device__ inline void add_residual(const GemmOutput& out, std::int64_t at, int count, float* x) {
  if (out.aligned) return add_residual<T, N>(out, at, Whole<N>(), x);
  const T* residual = static_cast<const T*>(out.residual) + at;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (j < count) x[j] += to_f32(residual[j]);
  }
}

/// Rounds and stores the N elements at flat index `at`.
template <typename T, int N>
__device__ inline void store_group(const GemmOutput& out, std::int64_t at, Whole<N>,
                                   const float* x) {
  Vector<T, N> group;
#pragma unroll
  for (int j = 0; j < N; ++j) group.at[j] = from_f32<T>(x[j]);
  *reinterpret_cast<Vector<T, N>*>(static_cast<T*>(out.c) + at) = group;
}
template <typename T, int N>
__device__ inline void store_group(const GemmOutput& out, std::int64_t at, int count,
                                   const float* x) {
  if (out.aligned) return store_group<T, N>(out, at, Whole<N>(), x);
  T* c = static_cast<T*>(out.c) + at;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (j < count) c[j] = from_f32<T>(x[j]);
  }
}

// SAFETY: the residual may be c itself. Every element is read and written by one thread, in this
// order, and neither pointer is __restrict__.
template <typename T>
__device__ inline void store_output(const GemmOutput& out, std::int64_t at, int count,
                                    float (&x)[kOutputColumns]) {
  if (out.residual != nullptr) add_residual<T, kOutputColumns>(out, at, count, x);
  store_group<T, kOutputColumns>(out, at, count, x);
}

/// Finishes and stores sums of columns [column, column + 4) of a row; `column` is a multiple of 4.
/// Columns behind the last are left out. Rows of the parts of a Gemm are counted through.
__device__ inline void write_output(const GemmOutput& out, std::int64_t row, std::int64_t column,
                                    const float4& sums) {
  const std::int64_t left = out.n - column;
  if (left <= 0) return;
  const int count = left < kOutputColumns ? static_cast<int>(left) : kOutputColumns;
  float x[kOutputColumns] = {sums.x, sums.y, sums.z, sums.w};
  if (out.bias != nullptr) {
    const auto bias = out.aligned ? load_bias<kOutputColumns>(out, column)
                                  : load_bias<kOutputColumns>(out, column, count);
#pragma unroll
    for (int j = 0; j < kOutputColumns; ++j) x[j] += bias.at[j];
  }
  activate(out.activation, x);
  const std::int64_t at = row * out.n + column;
  switch (out.type) {
    case DType::kBF16:
      return store_output<bf16>(out, at, count, x);
    case DType::kF16:
      return store_output<f16>(out, at, count, x);
    default:
      return store_output<float>(out, at, count, x);
  }
}

/// A block's tile of c: its part, its first row and column, and its steps of k.
struct GemmTile {
  std::int64_t part = 0, row = 0, column = 0;
  std::int64_t k_begin = 0, k_end = 0;
};

/// The tile of block `index`. Blocks that run at the same time share rows of a and columns of b in
/// the L2 cache: they go down groups of 16 tiles of rows before they take the next columns.
__device__ inline GemmTile gemm_tile(const Gemm& g, unsigned index, int rows, int columns) {
  constexpr unsigned kGroup = 16;
  const auto down = static_cast<unsigned>(ceil_div(g.m, static_cast<std::int64_t>(rows)));
  const auto across = static_cast<unsigned>(ceil_div(g.n, static_cast<std::int64_t>(columns)));
  const unsigned part = index / (down * across);
  const unsigned tile = index % (down * across);
  const unsigned first = tile / (kGroup * across) * kGroup;
  const unsigned height = min(down - first, kGroup);
  const unsigned in_group = tile % (kGroup * across);
  GemmTile result;
  result.part = part;
  result.row = static_cast<std::int64_t>(first + in_group % height) * rows;
  result.column = static_cast<std::int64_t>(in_group / height) * columns;
  result.k_begin = g.pieces ? part * g.piece_k : 0;
  result.k_end = g.pieces ? min(g.k, result.k_begin + g.piece_k) : g.k;
  return result;
}

/// The number of tiles of all parts.
inline std::int64_t gemm_tiles(const Gemm& g, std::int64_t rows, std::int64_t columns) {
  return g.parts * ceil_div(g.m, rows) * ceil_div(g.n, columns);
}

/// Launches a kernel on `blocks` blocks with `shared` bytes of dynamic shared memory.
template <typename... Parameters>
cudaError_t launch_gemm(void (*kernel)(Parameters...), std::int64_t blocks, int threads,
                        std::size_t shared, const Context& context,
                        std::type_identity_t<Parameters>... arguments) {
  constexpr std::int64_t kMostBlocks = 0x7fffffff;
  constexpr std::size_t kWithoutAsking = 48 * 1024;
  if (blocks > kMostBlocks) return cudaErrorInvalidConfiguration;
  if (shared > kWithoutAsking) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return error;
  }
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared, context.stream>>>(
      arguments...);
  return launch_error();
}

}  // namespace volta::cuda
