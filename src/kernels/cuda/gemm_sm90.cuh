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
// Two blocks may form a cluster: they take two tiles of the same columns, each reads half of b, and
// the engine brings it to both. A stage is then free when the warps of both have read it.
//
// A group's sums are finished where they are, 64 columns at a time. Results of 16 bits go through
// shared memory, where each warp has two places for 16 x 64 of them, and the engine writes them to
// c while the warp goes on. If the engine cannot, because rows of c are not multiples of 16 bytes,
// the lanes copy from there to c in words. Results of f32 are stored from registers.
//
// Bits: an element's sum is one chain of products of 16 steps of k in order; the first one does not
// add to anything. Elements outside of a and b are zeros, so ragged sizes need no other code.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm_sm90.h"
#include "kernels/cuda/gemm_sm90_end.cuh"
#include "kernels/cuda/gemm_sm90_ptx.cuh"
#include "kernels/cuda/gemm_sm90_shape.cuh"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda {
namespace {

#if VOLTA_HOPPER

/// Copies an operand's part of a stage: `count` rows of a (columns of b) from `first` on, for 64
/// steps of k. `ranks` are the blocks of the cluster that get it, a bit for each; 0 is only this.
template <bool kTransposed>
__device__ inline void copy_operand(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier,
                                    int first, int count, int k, int layer, unsigned ranks) {
  const auto copy = [&](std::uint32_t place, int column, int row) {
    if (ranks != 0) {
      hopper::copy_box_to(place, map, barrier, column, row, layer, ranks);
    } else {
      hopper::copy_box(place, map, barrier, column, row, layer);
    }
  };
  if constexpr (kTransposed) {
    constexpr int kBoxBytes = kDepth * kBoxRowBytes;
#pragma unroll 1
    for (int i = 0; i < count; i += kBoxWidth, to += kBoxBytes) copy(to, first + i, k);
  } else {
    copy(to, k, first);
  }
}

/// The producer: one thread.
template <typename Shape, bool kTransposeA, bool kTransposeB>
__device__ inline void produce(const Ring<Shape>& ring, const Sm90Maps& maps, const Gemm& g,
                               const Sm90Work& work, unsigned first_tile, unsigned tile_step,
                               unsigned rank) {
  hopper::prefetch_map(maps.a);
  hopper::prefetch_map(maps.b);
  // Each block of a cluster reads its share of b's columns for all.
  const unsigned ranks = work.cluster > 1 ? (1u << work.cluster) - 1 : 0;
  const int share = Shape::kColumns / work.cluster;
  const int first_share = static_cast<int>(rank) * share;
  RingPosition<Shape> at;
  for (unsigned index = first_tile; index < work.tiles; index += tile_step) {
    const Sm90Tile tile = sm90_tile<Shape>(work, index, rank);
    const int layer = g.pieces ? 0 : tile.part;
    const int begin = first_step(g, tile.part), end = begin + step_count(g, tile.part);
    for (int k = begin; k < end; k += kDepth) {
      // In the first round this is the phase before the first, which counts as completed.
      hopper::wait_barrier(ring.empty(at.stage), at.parity ^ 1);
      const std::uint32_t full = ring.full(at.stage);
      hopper::arrive_and_expect(full, Shape::kStageBytes);
      copy_operand<kTransposeA>(ring.a(at.stage), maps.a, full, tile.row, Shape::kRows, k, layer,
                                0);
      copy_operand<kTransposeB>(
          ring.b(at.stage) + static_cast<std::uint32_t>(first_share * kBoxRowBytes), maps.b, full,
          tile.column + first_share, share, k, layer, ranks);
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
/// stages are given back to the producers of the cluster. `meanwhile` is called while the first
/// products run.
template <typename T, typename Shape, bool kTransposeA, bool kTransposeB, typename Meanwhile>
__device__ inline void sum_products(const Ring<Shape>& ring, RingPosition<Shape>& at, int group,
                                    int depth, int cluster, float (&sum)[Shape::kSums],
                                    const Meanwhile& meanwhile) {
  constexpr int kBoxBytes = kDepth * kBoxRowBytes;
  // The products of a group's four warps read shared memory together, so one warp speaks for all:
  // a lane for every block of the cluster.
  const auto lane = threadIdx.x % kWarpGroup;
  const bool signals = lane < static_cast<unsigned>(cluster);
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
    if (block == 0) meanwhile();
    // While these products run, the ones before them have ended, and their stage is free.
    hopper::wait_for_products<1>();
    if (block > 0 && signals) hopper::arrive_in(ring.empty(previous), lane);
    previous = at.stage;
    at.advance();
  }
  if (blocks == 0) meanwhile();
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
  if (blocks > 0 && signals) hopper::arrive_in(ring.empty(previous), lane);
  if (steps > 0) {
    if (signals) hopper::arrive_in(ring.empty(at.stage), lane);
    at.advance();
  }
}

#endif  // VOLTA_HOPPER

template <typename T, typename Shape, bool kTransposeA, bool kTransposeB>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    gemm_sm90_kernel(const __grid_constant__ Sm90Maps maps, const __grid_constant__ Gemm g,
                     const __grid_constant__ Sm90Work work) {
#if VOLTA_HOPPER
  // Of the 64,512 registers of 384 threads, 128 get 56 each and 256 get 224.
  constexpr int kProducerRegisters = 56, kConsumerRegisters = 224;
  extern __shared__ __align__(16) unsigned char shared[];
  const Ring<Shape> ring(shared);
  // From the first lane, so that the compiler knows that a warp does not diverge here.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpGroup, 0);
  const auto cluster = static_cast<unsigned>(work.cluster);
  const unsigned rank = cluster > 1 ? hopper::cluster_rank() : 0;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      hopper::init_barrier(ring.full(stage), 1);
      hopper::init_barrier(ring.empty(stage), kConsumers * work.cluster);
    }
    hopper::publish_barriers();
  }
  __syncthreads();
  if (cluster > 1) hopper::cluster_barrier();
  const unsigned first_tile = blockIdx.x / cluster, tile_step = gridDim.x / cluster;
  if (group == 0) {
    hopper::give_registers<kProducerRegisters>();
    if (threadIdx.x == 0) {
      produce<Shape, kTransposeA, kTransposeB>(ring, maps, g, work, first_tile, tile_step, rank);
    }
    __syncwarp();
  } else {
    hopper::take_registers<kConsumerRegisters>();
    const int consumer = group - 1;
    RingPosition<Shape> at;
    TileEnd<T, Shape> end(ring, maps, g, consumer);
    const unsigned per_part = work.down * work.across;
    float sum[Shape::kSums] = {};
    for (unsigned index = first_tile; index < work.tiles; index += tile_step) {
      const int depth = step_count(g, g.pieces ? static_cast<int>(index / per_part) : 0);
      sum_products<T, Shape, kTransposeA, kTransposeB>(
          ring, at, consumer, depth, work.cluster, sum,
          [&] { end.begin(sm90_tile<Shape>(work, index, rank)); });
      if (work.engine_stores) {
        end.template finish<true>(sum);
      } else {
        end.template finish<false>(sum);
      }
    }
    hopper::wait_for_stores();
  }
  // A block's shared memory must live as long as the others of the cluster write to it.
  if (cluster > 1) hopper::cluster_barrier();
#else
  // Code for other GPUs is never launched. If it were, an error is better than an unwritten c.
  __trap();
#endif
}

template <typename T, int kColumns, bool kTransposeA, bool kTransposeB>
cudaError_t launch_sm90(const Gemm& gemm, const Sm90Maps& maps, const Sm90Work& work,
                        unsigned blocks, const Context& context) {
  using Shape = Sm90Shape<kColumns>;
  const auto kernel = gemm_sm90_kernel<T, Shape, kTransposeA, kTransposeB>;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(work.cluster);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(Shape::kThreads);
  config.dynamicSmemBytes = Shape::kSharedBytes;
  config.stream = context.stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, maps, gemm, work));
  return launch_error();
}

/// Chooses the kernel for the operands' order in memory.
template <typename T, int kColumns>
cudaError_t choose_sm90(const Gemm& gemm, const Sm90Maps& maps, const Sm90Work& work,
                        unsigned blocks, const Context& context) {
  if (gemm.a.along_k) {
    return gemm.b.along_k
               ? launch_sm90<T, kColumns, false, false>(gemm, maps, work, blocks, context)
               : launch_sm90<T, kColumns, false, true>(gemm, maps, work, blocks, context);
  }
  return gemm.b.along_k ? launch_sm90<T, kColumns, true, false>(gemm, maps, work, blocks, context)
                        : launch_sm90<T, kColumns, true, true>(gemm, maps, work, blocks, context);
}

}  // namespace
}  // namespace volta::cuda
