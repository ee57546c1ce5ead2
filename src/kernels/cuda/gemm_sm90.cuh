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
// The first consumer group can be a few steps ahead of the second one: while one of them finishes
// its rows, the other one has the tensor cores for itself.
//
// A group's sums are finished where they are, 64 columns at a time. Results of 16 bits go through
// shared memory, where each warp has two places for 16 x 64 of them, and the engine writes them to
// c while the warp goes on. Other results are stored by the lanes.
//
// Rows whose distance is not a multiple of 16 bytes cannot be read or written by the engine, but
// every eighth of them can (tensor_map.h): each operand then has eight maps. If these are rows of a
// or c, row p of a tile in shared memory and registers is row 8 (p % 16) + p / 16 of the tile in
// memory: a warp's 16 rows are of one map. If they are steps of k, step p of 64 in shared memory is
// step 8 (p % 8) + p / 8.
//
// Bits: an element's sum is one chain of products of 16 steps of k in order; the first one does not
// add to anything. Elements outside of a and b are zeros, so ragged sizes need no other code. Only
// interleaved steps of k are summed in another order, in which they are in shared memory.
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

/// Copies an operand's part of a stage; what is the same for all of them.
struct OperandCopy {
  const CUtensorMap* maps;
  const unsigned char* shifts;
  bool interleaved;
  unsigned ranks;  ///< Blocks of the cluster that get it, a bit for each; 0 if only this one.

  __device__ void copy(std::uint32_t to, int map, std::uint32_t barrier, int column, int row,
                       int layer) const {
    if (ranks != 0) {
      hopper::copy_box_to(to, maps[map], barrier, column + shifts[map], row, layer, ranks);
    } else {
      hopper::copy_box(to, maps[map], barrier, column + shifts[map], row, layer);
    }
  }

  /// kTransposed: `count` boxes of 64 rows of a (columns of b), the first one being `first`, for 64
  /// steps of k from k on. Otherwise the one box, or the kBoxes boxes of every eighth row.
  template <bool kTransposed>
  __device__ void copy_stage(std::uint32_t to, std::uint32_t barrier, int first, int k, int layer,
                             int count) const {
    constexpr int kBoxBytes = kDepth * kBoxRowBytes;
    constexpr int kEighth = kBoxBytes / kInterleave;
    if constexpr (kTransposed) {
#pragma unroll 1
      for (int i = 0; i < count; ++i, to += kBoxBytes, first += kBoxWidth) {
        if (!interleaved) {
          copy(to, 0, barrier, first, k, layer);
          continue;
        }
#pragma unroll 1
        for (int j = 0; j < kInterleave; ++j) {
          copy(to + static_cast<std::uint32_t>(j * kEighth), j, barrier, first, k / kInterleave,
               layer);
        }
      }
    } else if (!interleaved) {
      copy(to, 0, barrier, k, first, layer);
    } else {
      // Only a is: 128 rows.
#pragma unroll 1
      for (int j = 0; j < kInterleave; ++j) {
        copy(to + static_cast<std::uint32_t>(j * 2 * kEighth), j, barrier, k, first / kInterleave,
             layer);
      }
    }
  }
};

/// The tile of the cluster's index-th, for the block of this rank in it.
template <typename Shape>
__device__ inline GemmTile sm90_tile(const Gemm& g, const Sm90Work& work, unsigned index,
                                     unsigned rank) {
  GemmTile tile = gemm_tile<8>(g, index, Shape::kRows * work.cluster, Shape::kColumns);
  tile.row += rank * Shape::kRows;
  return tile;
}

/// The producer: one thread.
template <typename Shape, bool kTransposeA, bool kTransposeB>
__device__ inline void produce(const Ring<Shape>& ring, const Sm90Maps& maps, const Gemm& g,
                               const Sm90Work& work, unsigned rank) {
  const Sm90Layout layout = work.layout;
  const auto cluster = static_cast<unsigned>(work.cluster);
  const OperandCopy a = {maps.a, work.shift_a,
                         kTransposeA ? layout.k_interleaved : layout.rows_interleaved, 0};
  const OperandCopy b = {maps.b, work.shift_b, kTransposeB && layout.k_interleaved,
                         cluster > 1 ? (1u << cluster) - 1 : 0};
  hopper::prefetch_map(maps.a[0]);
  hopper::prefetch_map(maps.b[0]);
  // Each block reads its share of b's columns.
  const int share = Shape::kColumns / work.cluster;
  const int first_share = static_cast<int>(rank) * share;
  RingPosition<Shape> at;
  for (unsigned index = blockIdx.x / cluster; index < work.tiles; index += gridDim.x / cluster) {
    const GemmTile tile = sm90_tile<Shape>(g, work, index, rank);
    const auto row = static_cast<int>(tile.row);
    const int column = static_cast<int>(tile.column) + first_share;
    const auto k_end = static_cast<int>(tile.k_end);
    const int layer = g.pieces ? 0 : static_cast<int>(tile.part);
    for (auto k = static_cast<int>(tile.k_begin); k < k_end; k += kDepth) {
      // In the first round this is the phase before the first, which counts as completed.
      hopper::wait_barrier(ring.empty(at.stage), at.parity ^ 1);
      const std::uint32_t full = ring.full(at.stage);
      hopper::arrive_and_expect(full, Shape::kStageBytes);
      a.copy_stage<kTransposeA>(ring.a(at.stage), full, row, k, layer, Shape::kRows / kBoxWidth);
      const std::uint32_t to_b =
          ring.b(at.stage) + static_cast<std::uint32_t>(first_share * kBoxRowBytes);
      b.copy_stage<kTransposeB>(to_b, full, column, k, layer, share / kBoxWidth);
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

/// The named barrier at which the second consumer group waits for the first one.
inline constexpr int kLeadBarrier = 1;

/// Sums `depth` steps of k, from the stages at `at` on. On return the sums are complete, and the
/// stages are given back to the producers of the cluster. `lead` is the step of 64 after which this
/// group lets the other one begin, or 0.
template <typename T, typename Shape, bool kTransposeA, bool kTransposeB>
__device__ inline void sum_products(const Ring<Shape>& ring, RingPosition<Shape>& at, int group,
                                    int depth, int cluster, int lead, float (&sum)[Shape::kSums]) {
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
    // While these products run, the ones before them have ended, and their stage is free.
    hopper::wait_for_products<1>();
    if (block > 0 && signals) hopper::arrive_in(ring.empty(previous), lane);
    if (block + 1 == lead) hopper::arrive_named(kLeadBarrier, kConsumers * kWarpGroup);
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

/// Calls body(j, h, flat index, count) for the pairs of a lane that have elements in c.
template <int kPairs, typename Body>
__device__ inline void for_pairs(const GemmOutput& out, const StripPlace& place, const Body& body) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (!place.inside[h]) continue;
    const std::int64_t at = place.row[h] * out.n + place.column;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const auto left = static_cast<int>(min(out.n - place.column - j * 8, std::int64_t{2}));
      if (left > 0) body(j, h, at + j * 8, left);
    }
  }
}

/// Turns a lane's sums into results, all but the rounding. C is the type of c.
template <typename C, int kStripSums>
__device__ inline void add_residuals(const GemmOutput& out, const StripPlace& place,
                                     float (&x)[kStripSums]) {
  if (out.residual == nullptr) return;
  for_pairs<kStripSums / 4>(out, place, [&](int j, int h, std::int64_t at, int count) {
    add_residual<C, 2>(out, at, count, x + 4 * j + 2 * h);
  });
}

/// Adds the bias and activates.
template <int kStripSums>
__device__ inline void finish_strip(const GemmOutput& out, const StripPlace& place,
                                    float (&x)[kStripSums]) {
  if (out.bias != nullptr) {
#pragma unroll
    for (int j = 0; j < kStripSums / 4; ++j) {
      const std::int64_t column = place.column + j * 8;
      const auto count = static_cast<int>(min(out.n - column, std::int64_t{2}));
      if (count <= 0) continue;
      const auto bias = load_bias<2>(out, column, count);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        x[4 * j + 2 * h] += bias.at[0];
        x[4 * j + 2 * h + 1] += bias.at[1];
      }
    }
  }
  activate(out.activation, x);
}

/// Adds the residual and stores the lane's results.
template <typename C, int kStripSums>
__device__ inline void store_strip(const GemmOutput& out, const StripPlace& place,
                                   float (&x)[kStripSums]) {
  add_residuals<C>(out, place, x);
  for_pairs<kStripSums / 4>(out, place, [&](int j, int h, std::int64_t at, int count) {
    store_group<C, 2>(out, at, count, x + 4 * j + 2 * h);
  });
}

template <typename T>
__device__ inline std::uint32_t pack(float low, float high) {
  const Vector<T, 2> pair = {from_f32<T>(low), from_f32<T>(high)};
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Rounds a warp's results and writes them to a box of 16 x 64 in shared memory in the order of
/// tensor_map.h.
template <typename T, int kStripSums>
__device__ inline void write_box(std::uint32_t box, const float (&x)[kStripSums]) {
  const auto lane = threadIdx.x % kWarp;
  const auto row = lane % 16, chunk = lane / 16;
#pragma unroll
  for (int j = 0; j < kStripSums / 4; j += 2) {
    const std::uint32_t place = (static_cast<unsigned>(j) + chunk) ^ row % 8;
    hopper::store_matrices(box + row * kBoxRowBytes + place * 16, pack<T>(x[4 * j], x[4 * j + 1]),
                           pack<T>(x[4 * j + 2], x[4 * j + 3]), pack<T>(x[4 * j + 4], x[4 * j + 5]),
                           pack<T>(x[4 * j + 6], x[4 * j + 7]));
  }
}

/// Finishes the rows of tiles that a warp has, 16 of each.
template <typename T, typename Shape>
class TileEnd {
 public:
  __device__ TileEnd(const Ring<Shape>& ring, const Sm90Maps& maps, const Gemm& g,
                     const Sm90Work& work, int consumer)
      : ring_(ring), maps_(maps), g_(g), work_(work) {
    warp_ = consumer * (kWarpGroup / kWarp) + static_cast<int>(threadIdx.x) % kWarpGroup / kWarp;
  }

  __device__ void finish(const GemmTile& tile, const float (&sum)[Shape::kSums]) {
    const GemmOutput& out = g_.out;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const bool interleaved = work_.layout.rows_interleaved;
    const std::int64_t row =
        tile.row + (interleaved ? lane / 4 * kInterleave + warp_ : warp_ * 16 + lane / 4);
    const std::int64_t other = row + (interleaved ? 8 * kInterleave : 8);
    StripPlace place = {
        {tile.part * g_.m + row, tile.part * g_.m + other}, {row < g_.m, other < g_.m}, 0};
#pragma unroll 1
    for (int strip = 0; strip < Shape::kColumns / Shape::kStripColumns; ++strip) {
      const std::int64_t column = tile.column + strip * Shape::kStripColumns;
      if (column >= g_.n) break;
      place.column = column + lane % 4 * 2;
      float x[Shape::kStripSums];
      take_strip<0, Shape::kColumns / Shape::kStripColumns>(sum, strip, x);
      finish_strip(out, place, x);
      if (work_.layout.engine_stores) {
        add_residuals<T>(out, place, x);
        store_box(tile, static_cast<int>(column), x);
      } else if (out.type == DType::kF32) {
        store_strip<float>(out, place, x);
      } else if (out.type == DType::kBF16) {
        store_strip<bf16>(out, place, x);
      } else {
        store_strip<f16>(out, place, x);
      }
    }
  }

 private:
  __device__ void store_box(const GemmTile& tile, int column, const float (&x)[Shape::kStripSums]) {
    const bool first_lane = threadIdx.x % kWarp == 0;
    const std::uint32_t box = ring_.box(warp_, place_);
    place_ ^= 1;
    // The box before the last one came from here.
    if (first_lane) hopper::wait_for_reads<1>();
    __syncwarp();
    write_box<T>(box, x);
    hopper::publish_writes();
    __syncwarp();
    if (!first_lane) return;
    const bool interleaved = work_.layout.rows_interleaved;
    const int map = interleaved ? warp_ : 0;
    const int row = static_cast<int>(tile.row);
    hopper::store_box(maps_.c[map], box, column + work_.shift_c[map],
                      interleaved ? row / kInterleave : row + warp_ * 16,
                      static_cast<int>(tile.part));
  }

  const Ring<Shape>& ring_;
  const Sm90Maps& maps_;
  const Gemm& g_;
  const Sm90Work& work_;
  int warp_;  ///< Of the consumers' eight.
  int place_ = 0;
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
  if (group == 0) {
    hopper::give_registers<kProducerRegisters>();
    if (threadIdx.x == 0) produce<Shape, kTransposeA, kTransposeB>(ring, maps, g, work, rank);
    __syncwarp();
  } else {
    hopper::take_registers<kConsumerRegisters>();
    const int consumer = group - 1;
    RingPosition<Shape> at;
    TileEnd<T, Shape> end(ring, maps, g, work, consumer);
    float sum[Shape::kSums] = {};
    for (unsigned index = blockIdx.x / cluster; index < work.tiles; index += gridDim.x / cluster) {
      const GemmTile tile = sm90_tile<Shape>(g, work, index, rank);
      auto depth = static_cast<int>(tile.k_end - tile.k_begin);
      // Steps behind the last are zeros between the others.
      if (work.layout.k_interleaved) depth = round_up(depth, kDepth);
      if (work.lead > 0 && consumer == 1) {
        hopper::wait_named(kLeadBarrier, kConsumers * kWarpGroup);
      }
      sum_products<T, Shape, kTransposeA, kTransposeB>(ring, at, consumer, depth, work.cluster,
                                                       consumer == 0 ? work.lead : 0, sum);
      end.finish(tile, sum);
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
