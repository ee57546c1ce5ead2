// The pieces of the matrix product that live in vectors: the tile of c that stays in registers
// over a K block, the packing of a and b, and the epilogue. Compiled once per instruction set (see
// simd.h). Knows no threads and no loops around a tile; those are in matmul_tiles.cc.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_MATMUL_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_MATMUL_KERNEL_INL_H_
#undef VOLTA_KERNELS_CPU_MATMUL_KERNEL_INL_H_
#else
#define VOLTA_KERNELS_CPU_MATMUL_KERNEL_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>

#include "hwy/cache_control.h"
#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/matmul_plan.h"

// The loops over a tile's vectors have to vanish for its sums to live in registers. Not so under a
// sanitizer, which would check every copy of every access: minutes of compiling.
#ifndef VOLTA_UNROLL
#if HWY_IS_ASAN || HWY_IS_MSAN || HWY_IS_TSAN
#define VOLTA_UNROLL _Pragma("clang loop unroll(disable)")
#elif HWY_COMPILER_CLANG
#define VOLTA_UNROLL _Pragma("unroll 16")
#else
#define VOLTA_UNROLL _Pragma("GCC unroll 16")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

/// Vectors in a panel of b; the panel is 2 lanes(F32()) columns wide.
inline constexpr int kPanelVectors = 2;

/// Registers a tile may use for c, and its most rows: 14 x 2 (AVX-512, 32 registers), 6 x 2
/// (AVX2), 4 x 2 (SSE4, where a product needs a register too). Wider tiles of fewer rows keep as
/// many chains of multiply-adds in flight.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kTileRows = 14, kTileVectors = 28, kVectorRegisters = 32;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kTileRows = 6, kTileVectors = 12, kVectorRegisters = 16;
#else
inline constexpr int kTileRows = 4, kTileVectors = 8, kVectorRegisters = 16;
#endif

/// One tile: rows of a times panels of b over one K block.
struct Tile {
  const float* a;      ///< Row i, step k at a[i * a_row + k]; packed: at a[k * rows + i].
  std::int64_t a_row;  ///< Unused when a is packed.
  const void* b;       ///< Of type T; panel p, step k at b[p * panel_stride + k * b_step].
  std::int64_t b_step;
  std::int64_t panel_stride;
  std::int64_t prefetch;  ///< Elements of b to ask for ahead; 0: what is at hand.
  std::int64_t k;
  float* c;
  std::int64_t c_row;
  std::int64_t columns;  ///< Valid columns of c; b's panels are readable beyond them.
  bool accumulate;       ///< Add to c (later K blocks) instead of writing it.
};
using TileFunction = void (*)(const Tile&);

/// c[Rows, Panels] = a b, or += when accumulating. Every lane of an accumulator is its own chain
/// over k in order, so that neither Rows nor Panels can be told from the result; and columns of
/// padding never reach valid ones.
// SAFETY: the caller owns Rows rows of a, `k` steps of Panels whole panels of b, and the valid
// columns of Rows rows of c.
template <int Rows, int Panels, bool PackedA, typename T>
void tile(const Tile& t) {
  constexpr int kVectors = Panels * kPanelVectors;
  const F32 d;
  const std::int64_t width = lanes(d);
  V32 sum[Rows][kVectors];
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  const float* HWY_RESTRICT a = t.a;
  const T* HWY_RESTRICT b = static_cast<const T*>(t.b);
  const std::int64_t a_row = t.a_row;
  const std::int64_t b_step = t.b_step;
  const std::int64_t panel_stride = t.panel_stride;
  const std::int64_t prefetch = t.prefetch;
  for (std::int64_t k = 0; k < t.k; ++k) {
    V32 column[kVectors];
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t panel = v / kPanelVectors;
      const T* from = b + panel * panel_stride + (v % kPanelVectors) * width;
      column[v] = load(d, from);
      // One row reads so many panels at once that the hardware sees far enough by itself.
      if constexpr (Rows > 1 && !PackedA) {
        const std::size_t at = static_cast<std::size_t>(v % kPanelVectors * width) * sizeof(T);
        if (at % 64 == 0) hwy::Prefetch(from + prefetch);  // Once a cache line.
      }
    }
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      const V32 x = hn::Set(d, PackedA ? a[i] : a[i * a_row]);
      VOLTA_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(x, column[v], sum[i][v]);
    }
    a += PackedA ? Rows : 1;
    b += b_step;
  }
  if (t.columns >= kVectors * width) {
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        float* HWY_RESTRICT c = t.c + i * t.c_row + v * width;
        hn::StoreU(t.accumulate ? hn::Add(hn::LoadU(d, c), sum[i][v]) : sum[i][v], d, c);
      }
    }
    return;
  }
  // The ragged edge, by way of memory: rare, and not worth masks in every kernel.
  alignas(64) float edge[static_cast<std::size_t>(Rows) * kVectors * HWY_MAX_LANES_D(F32)];
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[i][v], d, edge + (i * kVectors + v) * width);
  }
  for (int i = 0; i < Rows; ++i) {
    const float* from = edge + std::int64_t{i} * kVectors * width;
    float* c = t.c + i * t.c_row;
    for (std::int64_t j = 0; j < t.columns; ++j) c[j] = t.accumulate ? c[j] + from[j] : from[j];
  }
}

/// The kernels for 1..kTileRows rows by 1..kMostPanels panels; null where a tile would not fit the
/// registers, or where b is not f32 and many rows make it better to pack b.
inline constexpr int kMostPanels = 8;
using TileRow = std::array<TileFunction, kMostPanels + 1>;
using TileTable = std::array<TileRow, kTileRows + 1>;

constexpr bool tile_fits(int rows, int panels) {
  if (panels == 1) return true;
  if (panels != 2 && panels != 4 && panels != 8) return false;
  const int sums = rows * panels * kPanelVectors;
  // With one row b is an operand from memory and needs no register.
  const int others = rows == 1 ? 2 : panels * kPanelVectors + 1;
  return sums <= kTileVectors && sums + others <= kVectorRegisters;
}

template <bool PackedA, typename T, int Rows, int Panels>
constexpr void fill_tiles(TileTable& table) {
  // A packed a has many rows (it is a weight's gradient): the widest tiles suffice.
  if constexpr (PackedA ? Panels == 1 : tile_fits(Rows, Panels)) {
    table[Rows][Panels] = &tile<Rows, Panels, PackedA, T>;
  }
  if constexpr (Panels > 1) {
    fill_tiles<PackedA, T, Rows, Panels - 1>(table);
  } else if constexpr (Rows > 1) {
    fill_tiles<PackedA, T, Rows - 1, kMostPanels>(table);
  }
}

template <bool PackedA, typename T>
constexpr TileTable make_tiles() {
  TileTable table{};
  constexpr int kRows = sizeof(T) == sizeof(float) ? kTileRows : kStreamRowsHalf;
  fill_tiles<PackedA, T, kRows, kMostPanels>(table);
  return table;
}

/// Copies `steps` rows of b[K, N] into panels `stride` apart: step k of the first at
/// to[k * panel width]; zeros beyond `columns`. All panels row by row: long reads, which the
/// hardware's prefetching wants.
template <typename T>
void pack_panels(const T* HWY_RESTRICT b, std::int64_t row, std::int64_t steps,
                 std::int64_t columns, std::int64_t stride, float* HWY_RESTRICT to) {
  const F32 d;
  const std::int64_t width = lanes(d);
  const std::int64_t panel_width = kPanelVectors * width;
  for (std::int64_t k = 0; k < steps; ++k, b += row, to += panel_width) {
    float* panel = to;
    for (std::int64_t j = 0; j < columns; j += panel_width, panel += stride) {
      for (int v = 0; v < kPanelVectors; ++v) {
        const std::int64_t at = j + v * width;
        const std::int64_t n = std::clamp<std::int64_t>(columns - at, 0, width);
        const V32 x = n == width ? load(d, b + at) : n > 0 ? load_n(d, b + at, n) : hn::Zero(d);
        hn::StoreU(x, d, panel + v * width);
      }
    }
  }
}

/// Copies part of encoded panels, `panels` of them `from_stride` elements apart, as f32 panels
/// `stride` apart.
template <typename T>
void widen_panels(const T* HWY_RESTRICT from, std::int64_t from_stride, std::int64_t panels,
                  std::int64_t stride, float* HWY_RESTRICT to) {
  const F32 d;
  for (std::int64_t p = 0; p < panels; ++p, from += from_stride, to += stride) {
    for (std::int64_t i = 0; i < stride; i += lanes(d)) store(d, load(d, from + i), to + i);
  }
}

/// A vector whose block j (of four lanes) is p[4 * j * row .. + 4).
template <typename T>
HWY_INLINE V32 load_blocks(const T* p, std::int64_t row) {
  const hn::FixedTag<float, 4> d4;
#if HWY_TARGET == HWY_AVX3
  const hn::FixedTag<float, 8> d8;
  const auto low = hn::Combine(d8, load(d4, p + 4 * row), load(d4, p));
  const auto high = hn::Combine(d8, load(d4, p + 12 * row), load(d4, p + 8 * row));
  return hn::Combine(F32(), high, low);
#elif HWY_TARGET == HWY_AVX2
  return hn::Combine(F32(), load(d4, p + 4 * row), load(d4, p));
#else
  (void)row;
  return load(d4, p);
#endif
}

/// Four steps k of one vector of columns, read from b[N, K] (rows of b are columns of the
/// product), transposed into the panel.
template <typename T>
HWY_INLINE void transpose_steps(const T* HWY_RESTRICT b, std::int64_t row,
                                float* HWY_RESTRICT panel) {
  const F32 d;
  const hn::Repartition<double, F32> d64;
  const V32 r0 = load_blocks(b, row);
  const V32 r1 = load_blocks(b + row, row);
  const V32 r2 = load_blocks(b + 2 * row, row);
  const V32 r3 = load_blocks(b + 3 * row, row);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));  // r0k0 r1k0 r0k1 r1k1
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));  // k2, k3
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  const std::int64_t step = kPanelVectors * lanes(d);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, panel);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, panel + step);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, panel + 2 * step);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, panel + 3 * step);
}

/// One panel from b[N, K]: b points at the panel's first column and the block's first step.
template <typename T>
void pack_panel_transposed(const T* HWY_RESTRICT b, std::int64_t row, std::int64_t steps,
                           std::int64_t columns, float* HWY_RESTRICT panel) {
  const std::int64_t width = lanes(F32());
  const std::int64_t step = kPanelVectors * width;
  for (int v = 0; v < kPanelVectors; ++v) {
    const T* from = b + v * width * row;
    float* to = panel + v * width;
    const std::int64_t n = std::clamp<std::int64_t>(columns - v * width, 0, width);
    std::int64_t k = 0;
    if (n == width) {
      for (; k + 4 <= steps; k += 4) transpose_steps(from + k, row, to + k * step);
    }
    for (; k < steps; ++k) {
      for (std::int64_t j = 0; j < width; ++j) {
        to[k * step + j] = j < n ? to_f32(from[j * row + k]) : 0.0f;
      }
    }
  }
}

/// A tile of a[K, M] (row i of the tile is column i): step k's `rows` elements at to[k * rows].
// SAFETY: whole vectors are stored, and what is beyond a step's elements is overwritten by the next
// step; behind the last one the region has a vector to spare (see plan_matmul). Reads are exact.
template <typename T>
void pack_a_transposed(const T* HWY_RESTRICT a, std::int64_t row, std::int64_t steps,
                       std::int64_t rows, float* HWY_RESTRICT to) {
  const F32 d;
  const std::int64_t width = lanes(d);
  for (std::int64_t k = 0; k < steps; ++k, a += row, to += rows) {
    for (std::int64_t i = 0; i < rows; i += width) {
      const std::int64_t n = std::min(width, rows - i);
      hn::StoreU(n == width ? load(d, a + i) : load_n(d, a + i, n), d, to + i);
    }
  }
}

/// A tile of a[M, K] in another type, as f32: row i at to[i * steps].
template <typename T>
void pack_a_rows(const T* HWY_RESTRICT a, std::int64_t row, std::int64_t steps, std::int64_t rows,
                 float* HWY_RESTRICT to) {
  const F32 d;
  const std::int64_t width = lanes(d);
  for (std::int64_t i = 0; i < rows; ++i, a += row, to += steps) {
    std::int64_t k = 0;
    for (; k + width <= steps; k += width) store(d, load(d, a + k), to + k);
    if (k < steps) store_n(d, load_n(d, a + k, steps - k), to + k, steps - k);
  }
}

/// c = activation(c + bias) + residual over one row's columns, while they are in L1. Null pointers
/// stand for what is absent.
template <class Function>
HWY_INLINE void finish_row(const float* bias, const float* residual, std::int64_t columns,
                           float* c) {
  const F32 d;
  const std::int64_t width = lanes(d);
  for (std::int64_t j = 0; j < columns; j += width) {
    const std::int64_t n = std::min(width, columns - j);
    const auto load_columns = [&](const float* p) HWY_ATTR {
      return n == width ? load(d, p + j) : load_n(d, p + j, n);
    };
    V32 x = load_columns(c);
    if (bias != nullptr) x = hn::Add(x, load_columns(bias));
    x = Function::value(d, x);
    if (residual != nullptr) x = hn::Add(x, load_columns(residual));
    if (n == width) {
      store(d, x, c + j);
    } else {
      store_n(d, x, c + j, n);
    }
  }
}

}  // namespace
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_MATMUL_KERNEL_INL_H_
