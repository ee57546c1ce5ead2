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
#include <type_traits>

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

/// The sums of strip `strip` of strips [kFirst, kFirst + kCount). Registers have no run-time index,
/// so this branches; then the code that finishes a strip exists only once.
template <int kFirst, int kCount, int kSums, int kStripSums>
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

/// Where a lane's sums of a strip are in c: x[4 j + 2 h + i] is in row `row[h]`, counted through
/// the parts, and in column `column + 8 j + i`.
struct StripPlace {
  std::int64_t row[2];
  bool inside[2];  ///< Whether c has the rows.
  std::int64_t column;
};

/// Calls body(j, h, flat index, count) for the pairs of a lane that have elements in c. kWhole: c
/// has all of the strip, and it may be accessed in groups. No case is then left to distinguish, so
/// that the accesses of a lane overlap.
template <bool kWhole, int kPairs, typename Body>
__device__ inline void for_pairs(const GemmOutput& out, const StripPlace& place, const Body& body) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const std::int64_t at = place.row[h] * out.n + place.column;
    if constexpr (kWhole) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) body(j, h, at + j * 8, Whole<2>());
    } else if (place.inside[h]) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const auto left = static_cast<int>(min(out.n - place.column - j * 8, std::int64_t{2}));
        if (left > 0) body(j, h, at + j * 8, left);
      }
    }
  }
}

// What turns a lane's sums of a strip into results, in this order: add_strip_bias, activate,
// add_strip_residual. C is the type of c, to which they are then rounded.

template <bool kWhole, int kStripSums>
__device__ inline void add_strip_bias(const GemmOutput& out, const StripPlace& place,
                                      float (&x)[kStripSums]) {
  if (out.bias == nullptr) return;
  constexpr int kPairs = kStripSums / 4;
  Vector<float, 2> bias[kPairs];
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const std::int64_t column = place.column + j * 8;
    if constexpr (kWhole) {
      bias[j] = load_bias<2>(out, column);
    } else {
      bias[j] = load_bias<2>(out, column, static_cast<int>(min(out.n - column, std::int64_t{2})));
    }
  }
#pragma unroll
  for (int i = 0; i < kStripSums; ++i) x[i] += bias[i / 4].at[i % 2];
}

template <typename C, bool kWhole, int kStripSums>
__device__ inline void add_strip_residual(const GemmOutput& out, const StripPlace& place,
                                          float (&x)[kStripSums]) {
  if (out.residual == nullptr) return;
  for_pairs<kWhole, kStripSums / 4>(out, place, [&](int j, int h, std::int64_t at, auto count) {
    add_residual<C, 2>(out, at, count, x + 4 * j + 2 * h);
  });
}

template <typename T>
__device__ inline std::uint32_t pack(float low, float high) {
  const Vector<T, 2> pair = {from_f32<T>(low), from_f32<T>(high)};
  // SAFETY: a Vector is aligned to its size, 4 bytes here.
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Finishes the 16 rows that a warp has of every tile. A box is what it stores at once: 16 rows of
/// 64 columns, in shared memory in the order of tensor_map.h.
template <typename T, typename Shape>
class TileEnd {
 public:
  __device__ TileEnd(const Ring<Shape>& ring, const Sm90Maps& maps, const Gemm& g, int consumer)
      : maps_(maps), g_(g) {
    lane_ = static_cast<int>(threadIdx.x) % kWarp;
    warp_ = consumer * (kWarpGroup / kWarp) + static_cast<int>(threadIdx.x) % kWarpGroup / kWarp;
    box_ = ring.box(warp_, 0);
  }

  /// Says where the tile is. Called while products run.
  __device__ void begin(const Sm90Tile& tile) {
    tile_ = tile;
    const std::int64_t row = tile.row + warp_ * 16 + lane_ / 4;
    place_.row[0] = tile.part * g_.m + row;
    place_.row[1] = place_.row[0] + 8;
    place_.inside[0] = row < g_.m;
    place_.inside[1] = row + 8 < g_.m;
    whole_tile_ =
        g_.out.aligned && tile.row + Shape::kRows <= g_.m && tile.column + Shape::kColumns <= g_.n;
    if (g_.out.bias != nullptr) fetch_bias();
  }

  /// kEngine: the engine stores c.
  template <bool kEngine>
  __device__ void finish(float (&sum)[Shape::kSums]) {
    const GemmOutput& out = g_.out;
    if (kEngine && whole_tile_ && out.activation == UnaryKind::kNone) {
      // The usual case: the registers of the sums are used in place.
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        float x[Shape::kStripSums];
#pragma unroll
        for (int i = 0; i < Shape::kStripSums; ++i) x[i] = sum[strip * Shape::kStripSums + i];
        begin_strip(strip);
        add_strip_bias<true>(out, place_, x);
        add_strip_residual<T, true>(out, place_, x);
        store_box<true>(strip, x);
      }
      return;
    }
    // The code of an activation is long: it exists only once.
#pragma unroll 1
    for (int strip = 0; strip < kStrips; ++strip) {
      if (!begin_strip(strip)) return;
      float x[Shape::kStripSums];
      take_strip<0, kStrips>(sum, strip, x);
      if (whole_tile_) {
        add_strip_bias<true>(out, place_, x);
      } else {
        add_strip_bias<false>(out, place_, x);
      }
      activate(out.activation, x);
      if (kEngine || out.type != DType::kF32) {
        add_strip_residual<T, false>(out, place_, x);
        store_box<kEngine>(strip, x);
      } else if (whole_tile_) {
        store_f32<true>(x);
      } else {
        store_f32<false>(x);
      }
    }
  }

 private:
  static constexpr int kStrips = Shape::kColumns / Shape::kStripColumns;

  /// Brings the tile's bias to the L1 cache, a line of 32 bytes by every lane.
  __device__ void fetch_bias() const {
    const std::int64_t column = tile_.column + lane_ * (Shape::kColumns / kWarp);
    if (column >= g_.n) return;
    float unused;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(unused) : "l"(g_.out.bias + column));
  }

  /// False if c has none of the strip's columns.
  __device__ bool begin_strip(int strip) {
    const std::int64_t column = tile_.column + strip * Shape::kStripColumns;
    place_.column = column + lane_ % 4 * 2;
    return column < g_.n;
  }

  template <bool kWhole>
  __device__ void store_f32(float (&x)[Shape::kStripSums]) const {
    add_strip_residual<float, kWhole>(g_.out, place_, x);
    for_pairs<kWhole, Shape::kStripSums / 4>(
        g_.out, place_, [&](int j, int h, std::int64_t at, auto count) {
          store_group<float, 2>(g_.out, at, count, x + 4 * j + 2 * h);
        });
  }

  /// Writes results to a box in shared memory.
  __device__ void write_box(std::uint32_t box, const float (&x)[Shape::kStripSums]) const {
    const int row = lane_ % 16, chunk = lane_ / 16;
    const std::uint32_t first = box + static_cast<std::uint32_t>(row * kBoxRowBytes) +
                                static_cast<std::uint32_t>((chunk ^ row % 8) * 16);
#pragma unroll
    for (int j = 0; j < Shape::kStripSums / 4; j += 2) {
      hopper::store_matrices(first ^ static_cast<std::uint32_t>(j * 16),
                             pack<T>(x[4 * j], x[4 * j + 1]), pack<T>(x[4 * j + 2], x[4 * j + 3]),
                             pack<T>(x[4 * j + 4], x[4 * j + 5]),
                             pack<T>(x[4 * j + 6], x[4 * j + 7]));
    }
  }

  template <bool kEngine>
  __device__ void store_box(int strip, const float (&x)[Shape::kStripSums]) {
    const int column = tile_.column + strip * Shape::kStripColumns;
    const std::uint32_t box = box_ + place_in_use_;
    place_in_use_ ^= kWarpBoxBytes;
    if constexpr (!kEngine) {
      __syncwarp();  // The last box has been read.
      write_box(box, x);
      __syncwarp();
      copy_box(box, column);
    } else {
      // The box before the last one came from here.
      if (lane_ == 0) hopper::wait_for_reads<1>();
      __syncwarp();
      write_box(box, x);
      hopper::publish_writes();
      __syncwarp();
      if (lane_ == 0) {
        hopper::store_box(maps_.c, box, column, tile_.row + warp_ * 16, tile_.part);
      }
    }
  }

  /// Copies a box to rows of c of any alignment, in words of two elements. In every second row of
  /// an odd n, a word in c is a lane's second element and the next lane's first one.
  __device__ void copy_box(std::uint32_t box, int column) const {
    const std::int64_t first_row = std::int64_t{tile_.row} + warp_ * 16;
    const auto left = static_cast<int>(min(g_.n - column, std::int64_t{Shape::kStripColumns}));
    const auto rows = static_cast<int>(min(g_.m - first_row, std::int64_t{16}));
    auto* to =
        static_cast<unsigned short*>(g_.out.c) + (tile_.part * g_.m + first_row) * g_.n + column;
    std::uint32_t words[16];
#pragma unroll
    for (int row = 0; row < 16; ++row) {
      words[row] = hopper::load_shared(
          box + static_cast<std::uint32_t>(row * kBoxRowBytes + ((lane_ / 4 ^ row % 8) * 16) +
                                           lane_ % 4 * 4));
    }
    const bool last_lane = lane_ == (left - 1) / 2;
#pragma unroll
    for (int row = 0; row < 16; ++row, to += g_.n) {
      const std::uint32_t word = words[row];
      const std::uint32_t next = __shfl_down_sync(kAllLanes, word, 1);
      if (row >= rows) continue;
      // The elements before the first aligned word of the row: none or one.
      const int before = static_cast<int>(reinterpret_cast<std::uintptr_t>(to) / 2 % 2);
      const int element = lane_ * 2 + before;
      if (element + 1 < left) {
        // SAFETY: `before` makes the address even in elements, so that it is one of a word.
        *reinterpret_cast<std::uint32_t*>(to + element) =
            __funnelshift_r(word, next, static_cast<unsigned>(before * 16));
      }
      if (before != 0 && lane_ == 0) to[0] = static_cast<unsigned short>(word);
      // The last element, if its word is not complete.
      if ((left - before) % 2 != 0 && last_lane && left > before) {
        to[left - 1] = static_cast<unsigned short>(left % 2 != 0 ? word : word >> 16);
      }
    }
  }

  const Sm90Maps& maps_;
  const Gemm& g_;
  int lane_, warp_;                 ///< The warp is one of the consumers' eight.
  std::uint32_t box_;               ///< The first one of the warp's two.
  std::uint32_t place_in_use_ = 0;  ///< From there to the next one, in bytes.
  Sm90Tile tile_;
  StripPlace place_;
  bool whole_tile_ = false;  ///< c has all of it, and may be accessed in groups.
};

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
  return cudaLaunchKernelEx(&config, kernel, maps, gemm, work);
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
