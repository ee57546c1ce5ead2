// The tile of the products on Hopper, and what is in a block's shared memory: barriers, a ring of
// stages, and places for what warps store; see gemm_sm90.cuh.
#pragma once

#include <cstdint>

#include "kernels/cuda/common.cuh"
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

/// What a warp stores at once: 16 rows of 64 columns.
inline constexpr int kWarpBoxBytes = 16 * kBoxRowBytes;

/// kColumns is 64, 128 or 256. An operand of a stage is kDepth values of k of kRows rows (kColumns
/// columns): one box along k, or otherwise a box for every 64 of them.
template <int kColumns_>
struct Sm90Shape {
  static constexpr int kRows = kConsumers * kGroupRows, kColumns = kColumns_;
  static constexpr int kStages = kColumns == 256 ? 4 : 6;
  static constexpr int kStripColumns = 64;              ///< Of c, that are finished at a time.
  static constexpr int kStripSums = kStripColumns / 2;  ///< Per thread.
  static constexpr int kThreads = (1 + kConsumers) * kWarpGroup;
  static constexpr int kBytesOfA = kRows * kBoxRowBytes, kBytesOfB = kColumns * kBoxRowBytes;
  static constexpr int kStageBytes = kBytesOfA + kBytesOfB;
  static constexpr int kBarrierBytes = 2 * kStages * 8;
  static constexpr int kStoreBytes = kConsumers * (kWarpGroup / kWarp) * 2 * kWarpBoxBytes;
  /// The barriers come first. The stages begin at the next multiple of their alignment.
  static constexpr int kSharedBytes =
      kBarrierBytes + kStageAlignment + kStages * kStageBytes + kStoreBytes;
  static constexpr int kSums = kGroupRows * kColumns / kWarpGroup;  ///< Per thread.
  static_assert(kBytesOfA % kStageAlignment == 0 && kBytesOfB % kStageAlignment == 0);
  static_assert(kSharedBytes <= 227 * 1024);
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
  /// A warp's places for what it stores; place is 0 or 1.
  __device__ std::uint32_t box(int warp, int place) const {
    return a(Shape::kStages) + static_cast<std::uint32_t>((warp * 2 + place) * kWarpBoxBytes);
  }
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

/// A tile of c: its part, its first row and its first column.
struct Sm90Tile {
  int part = 0, row = 0, column = 0;
};

/// The tile of the index-th of a cluster, for its block `rank`. Clusters that run at the same time
/// share rows of a and columns of b in the L2 cache: they go down groups of 2,048 rows before they
/// take the next columns. (Divisions of 32 bits only: those of 64 are calls, which must not stand
/// between the start and the end of products.)
template <typename Shape>
__device__ inline Sm90Tile sm90_tile(const Sm90Work& work, unsigned index, unsigned rank) {
  const unsigned cluster = static_cast<unsigned>(work.cluster);
  const unsigned group = 16 / cluster;
  const unsigned per_part = work.down * work.across;
  const unsigned part = index / per_part;
  const unsigned tile = index - part * per_part;
  const unsigned first = tile / (group * work.across) * group;
  const unsigned in_group = tile - first * work.across;
  const unsigned height = min(work.down - first, group);
  const unsigned column = in_group / height;
  const unsigned row = (first + in_group - column * height) * cluster + rank;
  return {static_cast<int>(part), static_cast<int>(row) * Shape::kRows,
          static_cast<int>(column) * Shape::kColumns};
}

/// The steps of k of a part: from part * depth on.
__device__ inline int first_step(const Gemm& g, int part) {
  return g.pieces ? part * static_cast<int>(g.piece_k) : 0;
}
__device__ inline int step_count(const Gemm& g, int part) {
  const auto k = static_cast<int>(g.k);
  return g.pieces ? min(static_cast<int>(g.piece_k), k - first_step(g, part)) : k;
}

#endif  // VOLTA_HOPPER

}  // namespace
}  // namespace volta::cuda
