// Products of 16-bit matrices on the tensor cores with mma.sync, for sm_80 and up. Bound by flops;
// short K and few tiles are bound by the latency of the first copies and by the stores.
//
// A block computes a tile of c. A ring of stages in shared memory is filled by asynchronous copies;
// at most 99 KB, which all GPUs from sm_80 on have. A warp's sums stay in registers, and it loads
// the fragments of the next 16 steps of k while it multiplies the current ones. At the end the sums
// go through shared memory, so that rows are finished and stored in groups of columns.
#pragma once

#include <cstdint>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_output.cuh"
#include "kernels/cuda/gemm_tile.cuh"
#include "kernels/cuda/ptx.cuh"

namespace volta::cuda {
namespace {

/// A block's tile of c, a stage's steps of k, a warp's part of the tile, the stages, and the blocks
/// that a multiprocessor shall hold at once.
template <int kRows_, int kColumns_, int kDepth_, int kWarpRows_, int kWarpColumns_, int kStages_,
          int kBlocks_>
struct MmaShape {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kDepth = kDepth_;
  static constexpr int kWarpRows = kWarpRows_, kWarpColumns = kWarpColumns_;
  static constexpr int kStages = kStages_, kBlocks = kBlocks_;
  static constexpr int kThreads = kRows / kWarpRows * (kColumns / kWarpColumns) * kWarp;
  static constexpr int kStageBytes = (kRows + kColumns) * kDepth * 2;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  /// A warp's 16 rows of sums, with lines that avoid bank conflicts.
  static constexpr int kLineFloats = kWarpColumns + 8;
  static_assert(kThreads / kWarp * 16 * kLineFloats * 4 <= kSharedBytes);
  static_assert(kSharedBytes <= 99 * 1024);
};
using LargeMma = MmaShape<128, 256, 32, 64, 64, 4, 1>;
using MediumMma = MmaShape<128, 128, 32, 64, 64, 4, 2>;
using SmallMma = MmaShape<64, 64, 64, 32, 32, 4, 2>;

/// A warp's sums: fragments of 16 rows and 8 columns.
template <typename Shape>
struct WarpSums {
  float at[Shape::kWarpRows / 16][Shape::kWarpColumns / 8][4] = {};
};

/// Finishes and stores a warp's sums, 16 rows at a time. `lines` is the warp's own shared memory.
/// (row, column) is where they are in c, and `rows` how many of them c has from there on.
template <typename Shape>
__device__ void write_sums(const GemmOutput& out, const WarpSums<Shape>& sums, float* lines,
                           std::int64_t row, std::int64_t column, std::int64_t rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr int kGroups = Shape::kWarpColumns / kOutputColumns;
  // One copy of the code for all fragments: only its first lines, which need registers by number,
  // are repeated.
#pragma unroll 1
  for (int block = 0; block < Shape::kWarpRows / 16; ++block) {
#pragma unroll
    for (int i = 0; i < Shape::kWarpRows / 16; ++i) {
      if (i != block) continue;
      float* to = lines + lane / 4 * Shape::kLineFloats + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 8; ++j) {
        const float(&sum)[4] = sums.at[i][j];
        // SAFETY: lines begin at multiples of 16 bytes, and the offsets in them are even.
        *reinterpret_cast<float2*>(to + j * 8) = make_float2(sum[0], sum[1]);
        *reinterpret_cast<float2*>(to + 8 * Shape::kLineFloats + j * 8) =
            make_float2(sum[2], sum[3]);
      }
    }
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < 16 * kGroups; i += kWarp) {
      const int line = i / kGroups, group = i % kGroups * kOutputColumns;
      if (block * 16 + line >= rows) continue;
      write_output(out, row + block * 16 + line, column + group,
                   *reinterpret_cast<const float4*>(lines + line * Shape::kLineFloats + group));
    }
    __syncwarp();
  }
}

/// kAligned: both operands are. Otherwise each operand's flag decides about its copies.
template <typename T, typename Shape, bool kAAlongK, bool kBAlongK, bool kAligned>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks) gemm_mma(const Gemm g) {
  constexpr int kAFragments = Shape::kWarpRows / 16, kBFragments = Shape::kWarpColumns / 16;
  constexpr int kSteps = Shape::kDepth / kMmaK;  // Of 16, per stage.
  constexpr int kStages = Shape::kStages;
  using CopyA = TileCopy<T, Shape::kRows, Shape::kDepth, Shape::kThreads, kAAlongK>;
  using CopyB = TileCopy<T, Shape::kColumns, Shape::kDepth, Shape::kThreads, kBAlongK>;
  extern __shared__ __align__(128) unsigned char shared[];

  const GemmTile tile = gemm_tile(g, blockIdx.x, Shape::kRows, Shape::kColumns);
  const auto rows = static_cast<int>(min(g.m - tile.row, static_cast<std::int64_t>(Shape::kRows)));
  const auto columns =
      static_cast<int>(min(g.n - tile.column, static_cast<std::int64_t>(Shape::kColumns)));
  CopyA copy_a(g.a, tile.part, tile.row, rows, tile.k_begin, tile.k_end);
  CopyB copy_b(g.b, tile.part, tile.column, columns, tile.k_begin, tile.k_end);

  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  constexpr int kWarpsDown = Shape::kRows / Shape::kWarpRows;
  const int warp_row = warp % kWarpsDown * Shape::kWarpRows;
  const int warp_column = warp / kWarpsDown * Shape::kWarpColumns;
  const FragmentLoad<Shape::kRows, Shape::kDepth, kAAlongK, true, kAFragments> load_a(warp_row);
  const FragmentLoad<Shape::kColumns, Shape::kDepth, kBAlongK, false, kBFragments> load_b(
      warp_column);
  const std::uint32_t address = shared_address(shared);

  const std::int64_t depth = tile.k_end - tile.k_begin;
  const auto stages = static_cast<int>(ceil_div(depth, static_cast<std::int64_t>(Shape::kDepth)));
  // The last stage may have fewer products than kSteps: none is all padding.
  const auto steps = static_cast<int>(ceil_div(depth, static_cast<std::int64_t>(kMmaK)));
  const auto fill = [&](int stage) {
    if (stage < stages) {
      unsigned char* to = shared + stage % kStages * Shape::kStageBytes;
      copy_a.template next<kAligned>(to, g.a.aligned);
      copy_b.template next<kAligned>(to + CopyA::kBytes, g.b.aligned);
    }
    commit_copies();  // Perhaps an empty group, so that all stages wait for as many.
  };
  std::uint32_t a[2][kAFragments][4], b[2][kBFragments][4];
  const auto load = [&](int buffer, int stage, int step) {
    const std::uint32_t from = address + stage % kStages * Shape::kStageBytes;
    load_a.load(a[buffer], from, step);
    load_b.load(b[buffer], from + CopyA::kBytes, step);
  };

#pragma unroll 1
  for (int i = 0; i + 1 < kStages; ++i) fill(i);
  wait_for_copies<kStages - 2>();
  __syncthreads();
  load(0, 0, 0);
  WarpSums<Shape> sums;
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSteps - 1) {
        // The next stage is complete after the barrier. All warps have loaded the last fragments
        // of this stage before it, so that the stage may be filled again after it. Behind the last
        // stage this loads fragments that nobody uses.
        wait_for_copies<kStages - 2>();
        __syncthreads();
        load((step + 1) % 2, stage + 1, 0);
      } else {
        load((step + 1) % 2, stage, step + 1);
      }
      if (step == 0) fill(stage + kStages - 1);
      if (step > 0 && stage * kSteps + step >= steps) continue;
#pragma unroll
      for (int i = 0; i < kAFragments; ++i) {
#pragma unroll
        for (int j = 0; j < kBFragments * 2; ++j) {
          multiply_add<T>(sums.at[i][j], a[step % 2][i], b[step % 2][j / 2][j % 2 * 2],
                          b[step % 2][j / 2][j % 2 * 2 + 1]);
        }
      }
    }
  }
  wait_for_copies<0>();
  __syncthreads();
  // SAFETY: all copies have arrived and were read, and the lines of all warps fit (kSharedBytes).
  auto* lines = reinterpret_cast<float*>(shared) + warp * 16 * Shape::kLineFloats;
  write_sums<Shape>(g.out, sums, lines, tile.part * g.m + tile.row + warp_row,
                    tile.column + warp_column, rows - warp_row);
}

template <typename T, typename Shape, bool kAAlongK, bool kBAlongK, bool kAligned>
cudaError_t launch_mma(const Gemm& g, const Context& context) {
  return launch_gemm(&gemm_mma<T, Shape, kAAlongK, kBAlongK, kAligned>,
                     gemm_tiles(g, Shape::kRows, Shape::kColumns), Shape::kThreads,
                     Shape::kSharedBytes, context, g);
}

/// The time of a product with tiles of this shape, in units of 64x64 tiles: waves of blocks, each
/// with the work of its tile divided by how well it uses a multiprocessor.
template <typename Shape>
double mma_cost(const Gemm& g, const Context& context, double efficiency) {
  const std::int64_t waves =
      ceil_div(gemm_tiles(g, Shape::kRows, Shape::kColumns),
               static_cast<std::int64_t>(std::max(context.multiprocessors, 1)));
  return static_cast<double>(waves) * (Shape::kRows * Shape::kColumns / 4096) / efficiency;
}

/// Chooses the tile, and launches the kernel. Two transposed operands are rare: they always take
/// the small tile.
template <typename T, bool kAAlongK, bool kBAlongK>
cudaError_t choose_mma(const Gemm& g, const Context& context) {
  if constexpr (kAAlongK || !kBAlongK) {
    // Estimates, not measured.
    const double small = mma_cost<SmallMma>(g, context, 0.5);
    const double medium = mma_cost<MediumMma>(g, context, 0.85);
    const double large = mma_cost<LargeMma>(g, context, 1.0);
    const bool aligned = g.a.aligned && g.b.aligned;
    if (aligned && large < medium && large < small) {
      return launch_mma<T, LargeMma, kAAlongK, kBAlongK, true>(g, context);
    }
    if (medium < small) return launch_mma<T, MediumMma, kAAlongK, kBAlongK, false>(g, context);
  }
  return launch_mma<T, SmallMma, kAAlongK, kBAlongK, false>(g, context);
}

}  // namespace
}  // namespace volta::cuda
