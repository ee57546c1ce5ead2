// The end of a tile of the products on Hopper: what makes results of a warp's sums, and stores
// them. Bound by the instructions of an activation, otherwise by their latency: only the other
// group of warps multiplies meanwhile.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/arithmetic.h"
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm_output.cuh"
#include "kernels/cuda/gemm_sm90.h"
#include "kernels/cuda/gemm_sm90_ptx.cuh"
#include "kernels/cuda/gemm_sm90_shape.cuh"
#include "kernels/cuda/tensor_map.h"

#if VOLTA_HOPPER
namespace volta::cuda {
namespace {

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
  // SAFETY: the residual may be c itself. A warp reads that of its 16 x 64 results before it stores
  // them, and no other warp reads or writes these.
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

  /// Brings the tile's bias to the L1 cache, at most 32 bytes by every lane.
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

}  // namespace
}  // namespace volta::cuda
#endif  // VOLTA_HOPPER
