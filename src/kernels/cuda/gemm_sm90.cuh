// Products of 16-bit matrices for Hopper. Bound by flops; with short K also by the end of each tile
// (additions, activation, stores), during which a group of warps multiplies nothing.
//
// One block runs on each multiprocessor and takes tile after tile of c. Its first four warps are
// the producer: one thread fills a ring of stages in shared memory through the copy engine, and is
// ahead of the others by up to the whole ring, also across tiles. Two consumer groups of four warps
// multiply 64 rows each of a tile's 128; the sums stay in their registers. A stage has two
// barriers: `full` says that its 64 steps of k are there, `empty` that all consumer warps have read
// them.
//
// Bits: an element's sum is one chain of products of 16 steps of k in order; the first one does not
// add to anything. Elements outside of a and b are zeros, so ragged sizes need no other code.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm_output.cuh"
#include "kernels/cuda/gemm_sm90.h"
#include "kernels/cuda/gemm_sm90_ptx.cuh"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda {
namespace {

inline constexpr int kWarpGroup = 128;  ///< Threads of four warps.
inline constexpr int kConsumers = 2;    ///< Groups that multiply.
inline constexpr int kGroupRows = 64;   ///< Rows of c per consumer group.
inline constexpr int kDepth = 64;       ///< Steps of k per stage: rows of 128 bytes.
inline constexpr int kStepDepth = 16;   ///< Steps of k of one product.
/// Rows or columns of c in a box whose rows do not lie along k.
inline constexpr int kBoxWidth = kBoxRowBytes / 2;
/// What the swizzle's pattern needs.
inline constexpr int kStageAlignment = 1024;

/// kColumns is 128 or 256. An operand of a stage is kDepth values of k of kRows rows (kColumns
/// columns): one box along k, or otherwise a box for every 64 of them.
template <int kColumns_>
struct Sm90Shape {
  static constexpr int kRows = kConsumers * kGroupRows, kColumns = kColumns_;
  static constexpr int kStages = kColumns == 256 ? 4 : 6;
  static constexpr int kThreads = (1 + kConsumers) * kWarpGroup;
  static constexpr int kBytesOfA = kRows * kBoxRowBytes, kBytesOfB = kColumns * kBoxRowBytes;
  static constexpr int kStageBytes = kBytesOfA + kBytesOfB;
  static constexpr int kBarrierBytes = 2 * kStages * 8;
  /// The barriers come first. The stages begin at the next multiple of their alignment.
  static constexpr int kSharedBytes = kBarrierBytes + kStageAlignment + kStages * kStageBytes;
  static constexpr int kSums = kGroupRows * kColumns / kWarpGroup;  ///< Per thread.
  static_assert(kBytesOfA % kStageAlignment == 0 && kBytesOfB % kStageAlignment == 0);
  static_assert(kSharedBytes <= 227 * 1024);
};

/// How a launch is cut; the same for all blocks.
struct Sm90Work {
  unsigned tiles = 0;
};

#if VOLTA_HOPPER

/// Addresses in shared memory.
template <typename Shape>
struct Ring {
  std::uint32_t barriers, stages;

  __device__ explicit Ring(const void* shared)
      : barriers(shared_address(shared)),
        stages((barriers + Shape::kBarrierBytes + kStageAlignment - 1) / kStageAlignment *
               kStageAlignment) {}
  __device__ std::uint32_t full(int stage) const {
    return barriers + static_cast<std::uint32_t>(stage) * 8;
  }
  __device__ std::uint32_t empty(int stage) const { return full(Shape::kStages + stage); }
  __device__ std::uint32_t a(int stage) const {
    return stages + static_cast<std::uint32_t>(stage * Shape::kStageBytes);
  }
  __device__ std::uint32_t b(int stage) const { return a(stage) + Shape::kBytesOfA; }
};

/// A place in the sequence of uses of the stages.
template <typename Shape>
struct RingPosition {
  int stage = 0;
  unsigned parity = 0;  ///< Of the current round's phase of the stage's barriers.

  __device__ void advance() {
    if (++stage == Shape::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// Copies kCount rows of a (columns of b), the first one being `first`, for 64 steps of k.
template <int kCount, bool kTransposed>
__device__ inline void copy_operand(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier,
                                    int first, int k, int layer) {
  if constexpr (kTransposed) {
    constexpr int kBoxBytes = kDepth * kBoxRowBytes;
#pragma unroll
    for (int i = 0; i < kCount / kBoxWidth; ++i) {
      hopper::copy_box(to + static_cast<std::uint32_t>(i * kBoxBytes), map, barrier,
                       first + i * kBoxWidth, k, layer);
    }
  } else {
    hopper::copy_box(to, map, barrier, k, first, layer);
  }
}

/// The producer: one thread.
template <typename Shape, bool kTransposeA, bool kTransposeB>
__device__ inline void produce(const Ring<Shape>& ring, const CUtensorMap& map_a,
                               const CUtensorMap& map_b, const Gemm& g, const Sm90Work& work) {
  hopper::prefetch_map(map_a);
  hopper::prefetch_map(map_b);
  RingPosition<Shape> at;
  for (unsigned index = blockIdx.x; index < work.tiles; index += gridDim.x) {
    const GemmTile tile = gemm_tile(g, index, Shape::kRows, Shape::kColumns);
    const auto row = static_cast<int>(tile.row), column = static_cast<int>(tile.column);
    const auto k_end = static_cast<int>(tile.k_end);
    const int layer = g.pieces ? 0 : static_cast<int>(tile.part);
    for (auto k = static_cast<int>(tile.k_begin); k < k_end; k += kDepth) {
      // In the first round this is the phase before the first, which counts as completed.
      hopper::wait_barrier(ring.empty(at.stage), at.parity ^ 1);
      const std::uint32_t full = ring.full(at.stage);
      hopper::arrive_and_expect(full, Shape::kStageBytes);
      copy_operand<Shape::kRows, kTransposeA>(ring.a(at.stage), map_a, full, row, k, layer);
      copy_operand<Shape::kColumns, kTransposeB>(ring.b(at.stage), map_b, full, column, k, layer);
      at.advance();
    }
  }
}

/// Starts the product of step `step` of 16 in a stage. `keep` is false for a tile's first one.
template <typename T, typename Shape, bool kTransposeA, bool kTransposeB>
__device__ inline void multiply_step(float (&sum)[Shape::kSums], std::uint64_t a, std::uint64_t b,
                                     int step, bool keep) {
  // In units of 16 bytes: 16 values of k are 32 bytes of every row, or 16 rows.
  constexpr std::uint64_t kAlongK = kStepDepth * 2 / 16;
  constexpr std::uint64_t kTransposed = kStepDepth * kBoxRowBytes / 16;
  const auto i = static_cast<std::uint64_t>(step);
  hopper::multiply_async<T, kTransposeA, kTransposeB>(
      sum, a + i * (kTransposeA ? kTransposed : kAlongK),
      b + i * (kTransposeB ? kTransposed : kAlongK), keep);
}

/// Sums `depth` steps of k, from the stages at `at` on. On return the sums are complete, and the
/// stages are given back to the producer.
template <typename T, typename Shape, bool kTransposeA, bool kTransposeB>
__device__ inline void sum_products(const Ring<Shape>& ring, RingPosition<Shape>& at, int group,
                                    int depth, float (&sum)[Shape::kSums]) {
  constexpr int kBoxBytes = kDepth * kBoxRowBytes;
  const bool signals = threadIdx.x % kWarp == 0;
  // 64 rows of a are 64 rows of its box, or one of its boxes: the same bytes.
  const std::uint64_t first_a = hopper::operand_descriptor<kTransposeA>(
      ring.a(0) + static_cast<std::uint32_t>(group * kBoxBytes), kBoxBytes);
  const std::uint64_t first_b = hopper::operand_descriptor<kTransposeB>(ring.b(0), kBoxBytes);
  const int blocks = depth / kDepth;
  int previous = 0;
  for (int block = 0; block < blocks; ++block) {
    const auto offset = static_cast<std::uint64_t>(at.stage * (Shape::kStageBytes / 16));
    hopper::wait_barrier(ring.full(at.stage), at.parity);
    hopper::fence_sums();
#pragma unroll
    for (int step = 0; step < kDepth / kStepDepth; ++step) {
      multiply_step<T, Shape, kTransposeA, kTransposeB>(sum, first_a + offset, first_b + offset,
                                                        step, block + step > 0);
    }
    hopper::commit_products();
    // While these products run, the ones before them have ended, and their stage is free.
    hopper::wait_for_products<1>();
    if (block > 0 && signals) hopper::arrive(ring.empty(previous));
    previous = at.stage;
    at.advance();
  }
  const int steps = ceil_div(depth % kDepth, kStepDepth);
  if (steps > 0) {
    const auto offset = static_cast<std::uint64_t>(at.stage * (Shape::kStageBytes / 16));
    hopper::wait_barrier(ring.full(at.stage), at.parity);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      hopper::fence_sums();
      multiply_step<T, Shape, kTransposeA, kTransposeB>(sum, first_a + offset, first_b + offset,
                                                        step, blocks + step > 0);
      hopper::commit_products();
    }
  }
  hopper::wait_for_products<0>();
  hopper::use_sums(sum);
  if (blocks > 0 && signals) hopper::arrive(ring.empty(previous));
  if (steps > 0) {
    if (signals) hopper::arrive(ring.empty(at.stage));
    at.advance();
  }
}

/// Columns of c that are finished at a time.
inline constexpr int kStripColumns = 32;
inline constexpr int kStripSums = kStripColumns / 2;  ///< Per thread.

/// The sums of strip `strip` of strips [kFirst, kFirst + kCount). Registers have no run-time index,
/// so this branches; then the code that finishes a strip exists only once.
template <int kFirst, int kCount, int kSums>
__device__ inline void take_strip(const float (&sum)[kSums], int strip, float (&to)[kStripSums]) {
  if constexpr (kCount > 1) {
    if (strip < kFirst + kCount / 2) {
      take_strip<kFirst, kCount / 2>(sum, strip, to);
    } else {
      take_strip<kFirst + kCount / 2, kCount / 2>(sum, strip, to);
    }
  } else {
    // Assembly keeps the compiler from selecting among all sums instead, which takes longer.
#pragma unroll
    for (int i = 0; i < kStripSums; ++i) {
      asm volatile("mov.b32 %0, %1;" : "=f"(to[i]) : "f"(sum[kFirst * kStripSums + i]));
    }
  }
}

/// Finishes a group's 64 rows of a tile.
template <typename Shape>
__device__ inline void finish_tile(const Gemm& g, const GemmTile& tile, int group,
                                   const float (&sum)[Shape::kSums]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp % 4;
  const int quad = lane % 4;
  const bool odd = quad % 2 != 0;
  const std::int64_t row = tile.row + group * kGroupRows + warp * 16 + lane / 4;
  const std::int64_t first_row = tile.part * g.m;
#pragma unroll 1
  for (int strip = 0; strip < Shape::kColumns / kStripColumns; ++strip) {
    const std::int64_t column = tile.column + strip * kStripColumns;
    if (column >= g.n) break;
    float x[kStripSums];
    take_strip<0, Shape::kColumns / kStripColumns>(sum, strip, x);
    // A lane has two neighbouring columns in each group of 8 columns. Of 16 columns, lanes 2i and
    // 2i + 1 exchange two, so that each has four neighbours: one of the first 8, one of the others.
#pragma unroll
    for (int i = 0; i < kStripSums; i += 8) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float low0 = x[i + 2 * half], low1 = x[i + 2 * half + 1];
        const float high0 = x[i + 4 + 2 * half], high1 = x[i + 4 + 2 * half + 1];
        const float other0 = __shfl_xor_sync(kAllLanes, odd ? low0 : high0, 1);
        const float other1 = __shfl_xor_sync(kAllLanes, odd ? low1 : high1, 1);
        const float4 four = odd ? make_float4(other0, other1, high0, high1)
                                : make_float4(low0, low1, other0, other1);
        const int offset = i * 2 + (odd ? 8 : 0) + quad / 2 * 4;
        if (row + half * 8 < g.m) {
          write_output(g.out, first_row + row + half * 8, column + offset, four);
        }
      }
    }
  }
}

#endif  // VOLTA_HOPPER

template <typename T, typename Shape, bool kTransposeA, bool kTransposeB>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    gemm_sm90_kernel(const __grid_constant__ CUtensorMap map_a,
                     const __grid_constant__ CUtensorMap map_b, const __grid_constant__ Gemm g,
                     const Sm90Work work) {
#if VOLTA_HOPPER
  // Of 65,536 registers, 128 threads get 40 each and 256 get 232.
  constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  extern __shared__ __align__(16) unsigned char shared[];
  const Ring<Shape> ring(shared);
  // From the first lane, so that the compiler knows that a warp does not diverge here.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpGroup, 0);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      hopper::init_barrier(ring.full(stage), 1);
      hopper::init_barrier(ring.empty(stage), kConsumers * kWarpGroup / kWarp);
    }
    hopper::publish_barriers();
  }
  __syncthreads();
  if (group == 0) {
    hopper::give_registers<kProducerRegisters>();
    if (threadIdx.x == 0) produce<Shape, kTransposeA, kTransposeB>(ring, map_a, map_b, g, work);
  } else {
    hopper::take_registers<kConsumerRegisters>();
    const int consumer = group - 1;
    RingPosition<Shape> at;
    float sum[Shape::kSums] = {};
    for (unsigned index = blockIdx.x; index < work.tiles; index += gridDim.x) {
      const GemmTile tile = gemm_tile(g, index, Shape::kRows, Shape::kColumns);
      sum_products<T, Shape, kTransposeA, kTransposeB>(
          ring, at, consumer, static_cast<int>(tile.k_end - tile.k_begin), sum);
      finish_tile<Shape>(g, tile, consumer, sum);
    }
  }
#else
  // Code for other GPUs is never launched. If it were, an error is better than an unwritten c.
  __trap();
#endif
}

template <typename T, int kColumns, bool kTransposeA, bool kTransposeB>
cudaError_t launch_sm90(const Gemm& gemm, const Context& context) {
  using Shape = Sm90Shape<kColumns>;
  CUtensorMap map_a, map_b;
  cudaError_t error = make_tensor_map(mapped_a(gemm), kTransposeA ? kDepth : Shape::kRows, map_a);
  if (error != cudaSuccess) return error;
  error = make_tensor_map(mapped_b(gemm), kTransposeB ? kDepth : kColumns, map_b);
  if (error != cudaSuccess) return error;
  const auto kernel = gemm_sm90_kernel<T, Shape, kTransposeA, kTransposeB>;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Shape::kSharedBytes);
  if (error != cudaSuccess) return error;
  const std::int64_t tiles = gemm_tiles(gemm, Shape::kRows, kColumns);
  const unsigned blocks = blocks_for(tiles, 1, context.multiprocessors);
  kernel<<<blocks, Shape::kThreads, Shape::kSharedBytes, context.stream>>>(
      map_a, map_b, gemm, Sm90Work{static_cast<unsigned>(tiles)});
  return launch_error();
}

/// Chooses the kernel for the operands' order in memory.
template <typename T, int kColumns>
cudaError_t choose_sm90(const Gemm& gemm, const Context& context) {
  if (gemm.a.along_k) {
    return gemm.b.along_k ? launch_sm90<T, kColumns, false, false>(gemm, context)
                          : launch_sm90<T, kColumns, false, true>(gemm, context);
  }
  return gemm.b.along_k ? launch_sm90<T, kColumns, true, false>(gemm, context)
                        : launch_sm90<T, kColumns, true, true>(gemm, context);
}

}  // namespace
}  // namespace volta::cuda
