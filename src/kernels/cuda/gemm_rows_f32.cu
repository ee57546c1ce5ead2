// Products in f32 of few rows of a with a matrix of weights of any type. Bound by the bytes of b,
// which is read once.
//
// A block streams 8, 16 or 32 columns over all of K through a ring of stages in shared memory. A
// thread computes up to four rows of one column, each as one chain of fused multiply-adds over k in
// order: the same bits as gemm_f32.cu.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_output.cuh"
#include "kernels/cuda/ptx.cuh"

namespace volta::cuda {
namespace {

inline constexpr int kThreads = 128;
inline constexpr int kDepth = 64;  ///< Steps of k per stage.
inline constexpr int kStages = 6;
inline constexpr int kMostRows = static_cast<int>(kFewRowsF32);
inline constexpr int kMostColumns = 32;
inline constexpr int kLeastColumns = 8;
inline constexpr int kThreadRows = kMostRows / (kThreads / kMostColumns);
/// Bytes between rows of a in shared memory. The 16 more avoid bank conflicts.
inline constexpr int kALine = kDepth * 4 + 16;
inline constexpr int kABytes = kMostRows * kALine;

/// Bytes between lines of b in shared memory: columns if it is along k, otherwise steps of k.
template <typename T, bool kBAlongK>
__host__ __device__ constexpr int b_line(int columns) {
  return kBAlongK ? kDepth * static_cast<int>(sizeof(T)) + 16
                  : columns * static_cast<int>(sizeof(T));
}
template <typename T, bool kBAlongK>
__host__ __device__ constexpr int stage_bytes(int columns) {
  return kABytes + (kBAlongK ? columns : kDepth) * b_line<T, kBAlongK>(columns);
}

/// Copies `lines` lines of b, `elements` elements each, as they are in memory, a block together.
/// The rest of shared memory stays as it is, because it is never used.
template <typename T>
__device__ void copy_b(unsigned char* to, int to_line, const T* from, const GemmOperand& b,
                       int lines, int elements) {
  const int thread = static_cast<int>(threadIdx.x);
  if (b.aligned) {
    const int chunks = ceil_div(elements, kVector<T>);
    for (int i = thread; i < lines * chunks; i += kThreads) {
      const int line = i / chunks, element = i % chunks * kVector<T>;
      const int count = min(elements - element, kVector<T>);
      copy_async_16(shared_address(to + line * to_line + element * static_cast<int>(sizeof(T))),
                    from + line * b.stride + element, count * static_cast<int>(sizeof(T)));
    }
    return;
  }
  for (int i = thread; i < lines * elements; i += kThreads) {
    const int line = i / elements, element = i % elements;
    const T* source = from + line * b.stride + element;
    unsigned char* target = to + line * to_line + element * static_cast<int>(sizeof(T));
    if constexpr (sizeof(T) == 4) {
      copy_async_4(shared_address(target), source, 4);
    } else {
      // SAFETY: lines are padded to whole words, so that an element lies at a multiple of its size.
      *reinterpret_cast<T*>(target) = *source;
    }
  }
}

/// Copies `elements` elements of all rows of a, which become f32.
__device__ void copy_a(unsigned char* to, const GemmOperand& a, std::int64_t k, int rows,
                       int elements) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * elements; i += kThreads) {
    const int row = i / elements, element = i % elements;
    const std::int64_t at = row * a.stride + k + element;
    // SAFETY: kALine is a multiple of 16 bytes.
    auto* target = reinterpret_cast<float*>(to + row * kALine) + element;
    if (a.type == DType::kF32) {
      copy_async_4(shared_address(target), static_cast<const float*>(a.data) + at, 4);
    } else if (a.type == DType::kBF16) {
      *target = to_f32(static_cast<const bf16*>(a.data)[at]);
    } else {
      *target = to_f32(static_cast<const f16*>(a.data)[at]);
    }
  }
}

/// The block takes `columns` columns, 8, 16 or 32. Thread i has column i % columns and rows
/// i / columns, i / columns + kThreads / columns, ...
template <typename T, bool kBAlongK>
__global__ void __launch_bounds__(kThreads) gemm_rows_f32_kernel(const Gemm g, int columns) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int thread = static_cast<int>(threadIdx.x);
  const int line_b = b_line<T, kBAlongK>(columns);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * columns;
  const auto valid = static_cast<int>(min(g.n - column, static_cast<std::int64_t>(columns)));
  const auto rows = static_cast<int>(g.m);
  const auto stages = static_cast<int>(ceil_div(g.k, static_cast<std::int64_t>(kDepth)));
  const T* b = static_cast<const T*>(g.b.data) + column * (kBAlongK ? g.b.stride : 1);

  const auto fill = [&](int stage) {
    if (stage < stages) {
      const std::int64_t k = static_cast<std::int64_t>(stage) * kDepth;
      const auto depth = static_cast<int>(min(g.k - k, static_cast<std::int64_t>(kDepth)));
      unsigned char* to = shared + stage % kStages * stage_bytes<T, kBAlongK>(columns);
      copy_a(to, g.a, k, rows, depth);
      copy_b<T>(to + kABytes, line_b, b + k * (kBAlongK ? 1 : g.b.stride), g.b,
                kBAlongK ? valid : depth, kBAlongK ? depth : valid);
    }
    commit_copies();  // Perhaps an empty group, so that all stages wait for as many.
  };

  const int own_column = thread % columns;
  const int first_row = thread / columns, row_step = kThreads / columns;
  // Threads without a row do not multiply. The others have at most `own_rows` rows; those behind
  // the last one have room in shared memory, but their sums mean nothing.
  const bool multiplies = own_column < valid && first_row < rows;
  const int own_rows = ceil_div(rows, row_step);
  float sums[kThreadRows] = {};
  // Adds steps [k, k + 4) of a stage, or only the first `steps` of them.
  const auto multiply = [&](const unsigned char* from, int k, int steps) {
    float w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const T* at =
          reinterpret_cast<const T*>(from + kABytes + (kBAlongK ? own_column : k + i) * line_b);
      w[i] = i < steps ? to_f32(at[kBAlongK ? k + i : own_column]) : 0.0f;
    }
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
      if (r >= own_rows) break;
      const float4 x = *reinterpret_cast<const float4*>(from + (first_row + r * row_step) * kALine +
                                                        k * static_cast<int>(sizeof(float)));
      sums[r] = fmaf(x.x, w[0], sums[r]);
      if (steps > 1) sums[r] = fmaf(x.y, w[1], sums[r]);
      if (steps > 2) sums[r] = fmaf(x.z, w[2], sums[r]);
      if (steps > 3) sums[r] = fmaf(x.w, w[3], sums[r]);
    }
  };

#pragma unroll 1
  for (int i = 0; i + 1 < kStages; ++i) fill(i);
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    // After the barrier this stage is complete, and all threads have read the one before it, which
    // is filled again.
    wait_for_copies<kStages - 2>();
    __syncthreads();
    fill(stage + kStages - 1);
    const unsigned char* from = shared + stage % kStages * stage_bytes<T, kBAlongK>(columns);
    const std::int64_t left = g.k - static_cast<std::int64_t>(stage) * kDepth;
    if (!multiplies) continue;
    if (left >= kDepth) {
#pragma unroll 4
      for (int k = 0; k < kDepth; k += 4) multiply(from, k, 4);
    } else {
#pragma unroll 1
      for (int k = 0; k < left; k += 4) multiply(from, k, min(static_cast<int>(left) - k, 4));
    }
  }
  wait_for_copies<0>();
  __syncthreads();

  // SAFETY: the copies were read, and the lines of sums fit into the stages.
  auto* lines = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int r = 0; r < kThreadRows; ++r) {
    const int row = first_row + r * row_step;
    if (row < rows) lines[row * columns + own_column] = sums[r];
  }
  __syncthreads();
  const int groups = columns / kOutputColumns;
#pragma unroll 1
  for (int i = thread; i < rows * groups; i += kThreads) {
    const int row = i / groups, group = i % groups * kOutputColumns;
    write_output(g.out, row, column + group,
                 *reinterpret_cast<const float4*>(lines + row * columns + group));
  }
}

template <typename T, bool kBAlongK>
cudaError_t launch_rows_f32(const Gemm& g, const Context& context) {
  const std::int64_t processors = std::max(context.multiprocessors, 1);
  std::int64_t columns = kMostColumns;
  while (columns > kLeastColumns && ceil_div(g.n, columns) < processors) columns /= 2;
  const auto shared =
      static_cast<std::size_t>(kStages * stage_bytes<T, kBAlongK>(static_cast<int>(columns)));
  static_assert(kStages * stage_bytes<T, kBAlongK>(kMostColumns) <= 99 * 1024);
  return launch_gemm(&gemm_rows_f32_kernel<T, kBAlongK>, ceil_div(g.n, columns), kThreads, shared,
                     context, g, static_cast<int>(columns));
}

}  // namespace

cudaError_t gemm_rows_f32(const Gemm& gemm, const Context& context) {
  return with_float(gemm.b.type, [&](auto type) {
    using T = typename decltype(type)::type;
    return gemm.b.along_k ? launch_rows_f32<T, true>(gemm, context)
                          : launch_rows_f32<T, false>(gemm, context);
  });
}

}  // namespace volta::cuda
