// Products of few rows of a with a matrix of weights, both of 16 bits, on the tensor cores. Bound
// by the bytes of b, which is read once.
//
// A block takes 8 columns per warp, over all of K: pieces of K would change the result's bits. So
// that many bytes are on their way all the same, the block streams its columns and the rows of a
// through a deep ring of stages in shared memory. The products are those of gemm_mma.cuh, in the
// same order.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_output.cuh"
#include "kernels/cuda/gemm_tile.cuh"
#include "kernels/cuda/ptx.cuh"

namespace volta::cuda {
namespace {

inline constexpr int kDepth = 64;  ///< Steps of k per stage.
inline constexpr int kWarpColumns = 8;
inline constexpr int kMostWarps = 8;
inline constexpr int kLineChunks = kDepth / kChunk;

/// Stages for kRows rows: as many as fit into 96 KB with the most warps, at most 8.
template <int kRows>
inline constexpr int kRowsStages = kRows <= 32 ? 8 : 6;

template <int kRows>
constexpr int stage_bytes(int warps) {
  return (kRows + warps * kWarpColumns) * kDepth * 2;
}

/// The place of a chunk of a line of b not along k. The line has one chunk per warp, 1, 2, 4 or 8.
/// Eight lines in a row have their chunks of one index in different groups of banks.
__device__ inline int permuted_warp_chunk(int line, int chunk, int warps) {
  const int shift = warps == 8 ? 0 : warps == 4 ? 1 : warps == 2 ? 2 : 3;
  return chunk ^ (line >> shift & (warps - 1));
}

/// Copies lines of chunks into shared memory, a block together. Of each line `elements` elements
/// exist, the rest becomes zero; lines from `lines` on, up to `all_lines`, become zero, too.
/// place(line, chunk) is the index of a chunk in shared memory.
template <typename T, bool kCached, typename Place>
__device__ void copy_lines(unsigned char* to, const GemmOperand& operand, const T* from, int lines,
                           int all_lines, int elements, int chunks, const Place& place) {
  for (int i = static_cast<int>(threadIdx.x); i < all_lines * chunks;
       i += static_cast<int>(blockDim.x)) {
    const int line = i / chunks, chunk = i % chunks;
    const int count = line < lines ? min(max(elements - chunk * kChunk, 0), kChunk) : 0;
    const T* source = from + line * operand.stride + chunk * kChunk;
    unsigned char* target = to + place(line, chunk) * kChunkBytes;
    if (operand.aligned) {
      const void* address = count > 0 ? source : operand.data;
      if constexpr (kCached) {
        copy_async_16_cached(shared_address(target), address, count * 2);
      } else {
        copy_async_16(shared_address(target), address, count * 2);
      }
    } else {
      // SAFETY: stages begin at multiples of a chunk, and place() counts chunks.
      *reinterpret_cast<uint4*>(target) = load_unaligned_chunk(source, count);
    }
  }
}

/// kRows: rows of a, rounded up to whole fragments. The block has 32 threads per 8 columns.
template <typename T, int kRows, bool kBAlongK>
__global__ void __launch_bounds__(kMostWarps* kWarp) gemm_rows(const Gemm g) {
  constexpr int kStages = kRowsStages<kRows>;
  constexpr int kFragments = kRows / 16;
  constexpr int kSteps = kDepth / kMmaK;
  constexpr int kABytes = kRows * kDepth * 2;
  extern __shared__ __align__(128) unsigned char shared[];

  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int width = warps * kWarpColumns;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * width;
  const auto columns = static_cast<int>(min(g.n - column, static_cast<std::int64_t>(width)));
  const auto rows = static_cast<int>(g.m);
  const auto stages = static_cast<int>(ceil_div(g.k, static_cast<std::int64_t>(kDepth)));
  const T* a = static_cast<const T*>(g.a.data);
  const T* b = static_cast<const T*>(g.b.data) + column * (kBAlongK ? g.b.stride : 1);

  const auto fill = [&](int stage) {
    if (stage < stages) {
      const std::int64_t k = static_cast<std::int64_t>(stage) * kDepth;
      const auto depth = static_cast<int>(min(g.k - k, static_cast<std::int64_t>(kDepth)));
      unsigned char* to = shared + stage % kStages * stage_bytes<kRows>(warps);
      const auto along_k = [](int line, int chunk) {
        return line * kLineChunks + permuted_chunk<kLineChunks>(line, chunk);
      };
      // Rows of a that do not exist stay undefined: their products are never stored.
      copy_lines<T, true>(to, g.a, a + k, rows, rows, depth, kLineChunks, along_k);
      if constexpr (kBAlongK) {
        copy_lines<T, false>(to + kABytes, g.b, b + k, columns, width, depth, kLineChunks, along_k);
      } else {
        const auto across_k = [warps](int line, int chunk) {
          return line * warps + permuted_warp_chunk(line, chunk, warps);
        };
        copy_lines<T, false>(to + kABytes, g.b, b + k * g.b.stride, depth, kDepth, columns, warps,
                             across_k);
      }
    }
    commit_copies();  // Perhaps an empty group, so that all stages wait for as many.
  };
  // The fragments of b for steps 2 half and 2 half + 1 of a stage: two registers for each.
  const auto load_b = [&](std::uint32_t(&to)[4], std::uint32_t from, int half) {
    if constexpr (kBAlongK) {
      const int line = warp * kWarpColumns + lane % 8, chunk = half * 4 + lane / 8;
      const int place = line * kLineChunks + permuted_chunk<kLineChunks>(line, chunk);
      load_matrices(to, from + place * kChunkBytes);
    } else {
      const int line = half * kWarp + lane;
      const int place = line * warps + permuted_warp_chunk(line, warp, warps);
      load_matrices_transposed(to, from + place * kChunkBytes);
    }
  };
  const FragmentLoad<kRows, kDepth, true, true, kFragments> load_a(0);

#pragma unroll 1
  for (int i = 0; i + 1 < kStages; ++i) fill(i);
  float sums[kFragments][2 * 2] = {};
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    // After the barrier this stage is complete, and all warps have read the one before it, which is
    // filled again.
    wait_for_copies<kStages - 2>();
    __syncthreads();
    fill(stage + kStages - 1);
    const std::uint32_t from = shared_address(shared + stage % kStages * stage_bytes<kRows>(warps));
    std::uint32_t b_fragments[2][4], a_fragments[kSteps][kFragments][4];
    load_b(b_fragments[0], from + kABytes, 0);
    load_b(b_fragments[1], from + kABytes, 1);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) load_a.load(a_fragments[step], from, step);
    // Products that would be all padding are left out.
    const std::int64_t left = g.k - static_cast<std::int64_t>(stage) * kDepth;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step > 0 && step * kMmaK >= left) continue;
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
        multiply_add<T>(sums[i], a_fragments[step][i], b_fragments[step / 2][step % 2 * 2],
                        b_fragments[step / 2][step % 2 * 2 + 1]);
      }
    }
  }
  wait_for_copies<0>();
  __syncthreads();

  // Through shared memory, so that columns are finished and stored in groups.
  // SAFETY: the copies were read, and the lines fit into the stages (the launcher asserts it).
  // Every offset is even, and those of groups are multiples of four.
  auto* lines = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
    float* to = lines + (i * 16 + lane / 4) * width + warp * kWarpColumns + lane % 4 * 2;
    *reinterpret_cast<float2*>(to) = make_float2(sums[i][0], sums[i][1]);
    *reinterpret_cast<float2*>(to + 8 * width) = make_float2(sums[i][2], sums[i][3]);
  }
  __syncthreads();
  const int groups = width / kOutputColumns;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < rows * groups;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / groups, group = i % groups * kOutputColumns;
    write_output(g.out, row, column + group,
                 *reinterpret_cast<const float4*>(lines + row * width + group));
  }
}

/// Warps of a block. More share the rows of a, and read longer parts of the lines of a b that is
/// not along k; fewer spread few columns over more multiprocessors.
int choose_warps(const Gemm& g, const Context& context) {
  const std::int64_t processors = std::max(context.multiprocessors, 1);
  int warps = g.m <= 4 ? 1 : g.m <= 8 ? 2 : g.m <= 16 ? 4 : 8;
  if (!g.b.along_k) warps = std::max(warps, 4);
  const auto blocks = [&g](int count) { return ceil_div(g.n, std::int64_t{kWarpColumns} * count); };
  while (warps < kMostWarps && blocks(warps) > 4 * processors) warps *= 2;
  const int least = g.b.along_k ? 1 : 2;
  while (warps > least && 2 * blocks(warps) < processors) warps /= 2;
  return warps;
}

template <typename T, int kRows, bool kBAlongK>
cudaError_t launch_rows(const Gemm& g, const Context& context) {
  static_assert(kRowsStages<kRows> * stage_bytes<kRows>(kMostWarps) <= 99 * 1024);
  // The sums at the end fit into the first stages.
  static_assert(kRows * kWarpColumns * 4 <= kRowsStages<kRows> * kDepth * 2 * kWarpColumns);
  const int warps = choose_warps(g, context);
  return launch_gemm(&gemm_rows<T, kRows, kBAlongK>,
                     ceil_div(g.n, std::int64_t{kWarpColumns} * warps), warps * kWarp,
                     static_cast<std::size_t>(kRowsStages<kRows> * stage_bytes<kRows>(warps)),
                     context, g);
}

template <typename T, bool kBAlongK>
cudaError_t choose_rows(const Gemm& g, const Context& context) {
  if (g.m <= 16) return launch_rows<T, 16, kBAlongK>(g, context);
  if (g.m <= 32) return launch_rows<T, 32, kBAlongK>(g, context);
  return launch_rows<T, 64, kBAlongK>(g, context);
}

}  // namespace

cudaError_t gemm_rows_16bit(const Gemm& gemm, const Context& context) {
  if (gemm.a.type == DType::kBF16) {
    return gemm.b.along_k ? choose_rows<bf16, true>(gemm, context)
                          : choose_rows<bf16, false>(gemm, context);
  }
  return gemm.b.along_k ? choose_rows<f16, true>(gemm, context)
                        : choose_rows<f16, false>(gemm, context);
}

}  // namespace volta::cuda
