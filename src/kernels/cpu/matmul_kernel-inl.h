// The vector code of the matrix product: the tile of c that stays in registers during a K block,
// and the epilogue. Compiled once per instruction set (see simd.h). Knows no threads and no loops
// around a tile; those are in matmul_loops.cc.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_MATMUL_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_MATMUL_KERNEL_INL_H_
#undef VOLTA_KERNELS_CPU_MATMUL_KERNEL_INL_H_
#else
#define VOLTA_KERNELS_CPU_MATMUL_KERNEL_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/matmul_pack-inl.h"
#include "kernels/cpu/matmul_parameters.h"
#include "kernels/cpu/matmul_tile.h"

// The loops over a tile's vectors must be unrolled, or its sums do not stay in registers. Under a
// sanitizer they are not, because it would check every copy of every access and compile for
// minutes. VOLTA_NO_UNROLL is for loops that a compiler would unroll into more than the registers
// hold.
#ifndef VOLTA_UNROLL
#if HWY_IS_ASAN || HWY_IS_MSAN || HWY_IS_TSAN
#define VOLTA_UNROLL _Pragma("clang loop unroll(disable)")
#elif HWY_COMPILER_CLANG
#define VOLTA_UNROLL _Pragma("unroll 16")
#else
#define VOLTA_UNROLL _Pragma("GCC unroll 16")
#endif
#if HWY_COMPILER_CLANG
#define VOLTA_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define VOLTA_NO_UNROLL _Pragma("GCC unroll 1")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

// What a tile multiplies. `Element` is the stored type of a step of one column of b, or of a group
// of kSteps steps. column(p, s) is the vector of step s of the group at p. A step of a row of a is
// a `Row`, which broadcast() copies to all lanes. kPackedA: the rows of a tile are packed step by
// step. kInRows: b is row-major, so that panels are side by side and prefetches have a stride of
// their own.
struct F32Rows {
  using Row = float;
  static constexpr bool kPackedA = false;
  static constexpr bool kInRows = false;
  static V32 broadcast(const float* p) { return hn::Set(F32(), *p); }
  static V32 multiply_add(V32 x, V32 column, V32 sum) { return hn::MulAdd(x, column, sum); }
};
struct F32Panels : F32Rows {
  using Element = float;
  static constexpr int kSteps = 1;
  static V32 column(const float* p, int) { return hn::LoadU(F32(), p); }
};
struct F32InRows : F32Panels {
  static constexpr bool kInRows = true;
};
struct PackedAPanels : F32Panels {
  static constexpr bool kPackedA = true;
};
struct F16Panels : F32Rows {
  using Element = F16;
  static constexpr int kSteps = 1;
  static V32 column(const F16* p, int) { return load(F32(), p); }
};
/// bf16 in pairs of steps: the even one in the low half of 32 bits, the odd one in the high half.
struct BF16Panels : F32Rows {
  using Element = std::uint32_t;
  static constexpr int kSteps = 2;
  static V32 column(const std::uint32_t* p, int s) {
    const hn::RebindToUnsigned<F32> d;
    const auto pair = hn::LoadU(d, p);
    return hn::BitCast(F32(),
                       s == 0 ? hn::ShiftLeft<16>(pair) : hn::And(pair, hn::Set(d, 0xFFFF0000u)));
  }
};

/// Whether reads of b stay in memory order, step by step. Empty assembler statements keep the
/// compiler from reordering them. The hardware prefetches rows that are far apart better then (Zen
/// 5, 768 x 3072 and similar from L3, 2 and 4 rows: 1.3 to 1.6 times as fast). A tile of one row
/// reads b as a memory operand and needs no order.
template <class Source, int Rows>
inline constexpr bool kInOrder = Source::kInRows && Rows > 1;

/// Whether a tile prefetches b. One row reads so many panels at once that the hardware prefetches
/// far enough. With AVX-512 the hardware does so, too, if two to four rows read b in order (Zen 5,
/// four rows of 4096 x 4096 and 2048 x 5632: 1.2 and 1.3 times as fast as with prefetches in the
/// code; from L3 0.97). prefetches() in matmul_plan.cc is the same rule for plans.
template <class Source, int Rows>
inline constexpr bool kPrefetches = Rows > (Source::kInRows && HWY_TARGET == HWY_AVX3
                                                ? kHardwarePrefetchRows
                                                : 1) &&
                                    !Source::kPackedA;

/// Adds steps [0, steps) of one group: sum[i][v] += a * b.
template <class Source, int Rows, int Vectors>
HWY_INLINE void multiply_steps(const Tile& t, std::int64_t a_row,
                               const typename Source::Row* HWY_RESTRICT a,
                               const typename Source::Element* HWY_RESTRICT b,
                               const typename Source::Element* ahead, int steps,
                               V32 (&sum)[Rows][Vectors]) {
  const F32 d;
  const std::int64_t width = lanes(d);
  VOLTA_UNROLL
  for (int s = 0; s < steps; ++s) {
    V32 column[Vectors];
    VOLTA_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t from =
          Source::kInRows ? v * width
                          : v / kPanelVectors * t.panel_stride + v % kPanelVectors * width;
      column[v] = Source::column(b + from, s);
      if constexpr (kInOrder<Source, Rows>) __asm__ volatile("" ::: "memory");
      if constexpr (kPrefetches<Source, Rows>) {
        const std::int64_t at = v % kPanelVectors * width * std::int64_t{sizeof(*b)};
        if (s == 0 && at % 64 == 0) hwy::Prefetch(ahead + from);  // Once per cache line.
      }
    }
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      const V32 x = Source::broadcast(Source::kPackedA ? a + s * Rows + i : a + i * a_row + s);
      VOLTA_UNROLL
      for (int v = 0; v < Vectors; ++v) sum[i][v] = Source::multiply_add(x, column[v], sum[i][v]);
    }
  }
}

/// Adds `groups` groups of steps, a multiple of AtOnce, with separate instructions for each of
/// AtOnce groups.
template <class Source, int Rows, int Vectors, int AtOnce>
HWY_INLINE void multiply_groups(const Tile& t, std::int64_t groups,
                                const typename Source::Row* HWY_RESTRICT& a,
                                const typename Source::Element* HWY_RESTRICT& b,
                                const typename Source::Element*& ahead, V32 (&sum)[Rows][Vectors]) {
  const std::int64_t a_row = t.a_row, b_step = t.b_step;
  const std::int64_t ahead_step = Source::kInRows ? t.prefetch_step : b_step;
  for (std::int64_t g = 0; g < groups; g += AtOnce) {
    VOLTA_UNROLL
    for (int i = 0; i < AtOnce; ++i) {
      multiply_steps<Source, Rows, Vectors>(t, a_row, a, b, ahead, Source::kSteps, sum);
      a += Source::kPackedA ? Rows * Source::kSteps : Source::kSteps;
      b += b_step;
      ahead += ahead_step;
      if constexpr (kInOrder<Source, Rows>) __asm__ volatile("" : "+r"(b), "+r"(ahead));
    }
  }
}

/// c[Rows, Vectors] = a b, or c += a b when accumulating. Every lane of an accumulator is its own
/// chain of multiply-adds over k in order, from one K block into the next. So neither Rows nor
/// Vectors nor the blocks influence the result, and columns of padding never influence valid ones.
// SAFETY: the caller owns Rows rows of a, `k` steps of Vectors whole vectors of b (groups of kSteps
// are whole), and the valid columns of Rows rows of c.
template <class Source, int Rows, int Vectors>
void tile(const Tile& t) {
  const F32 d;
  const std::int64_t width = lanes(d);
  const bool whole = t.columns >= Vectors * width;
  V32 sum[Rows][Vectors];
  if (t.accumulate && whole) {
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < Vectors; ++v) sum[i][v] = hn::LoadU(d, t.c + i * t.c_row + v * width);
    }
  } else {
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < Vectors; ++v) {
        const std::int64_t n = std::clamp<std::int64_t>(t.columns - v * width, 0, width);
        sum[i][v] = t.accumulate ? load_n(d, t.c + i * t.c_row + v * width, n) : hn::Zero(d);
      }
    }
  }
  const auto* HWY_RESTRICT a = static_cast<const typename Source::Row*>(t.a);
  const auto* HWY_RESTRICT b = static_cast<const typename Source::Element*>(t.b);
  const auto* ahead = b + t.prefetch;
  const std::int64_t groups = t.k / Source::kSteps;
  // The hardware prefetches for each load instruction separately. With four of them, used in turn,
  // it prefetches further ahead (Zen 5, 768 x 3072, 8 rows: 1.1 times as fast from L3, 1.6 from
  // memory).
  constexpr int kAtOnce = kInOrder<Source, Rows> && HWY_TARGET != HWY_SSE4 ? 4 : 1;
  multiply_groups<Source, Rows, Vectors, kAtOnce>(t, groups / kAtOnce * kAtOnce, a, b, ahead, sum);
  if constexpr (kAtOnce > 1) {
    multiply_groups<Source, Rows, Vectors, 1>(t, groups % kAtOnce, a, b, ahead, sum);
  }
  if constexpr (Source::kSteps == 2) {  // An odd K: half a group is left.
    if (t.k % 2 != 0) multiply_steps<Source, Rows, Vectors>(t, t.a_row, a, b, ahead, 1, sum);
  }
  if (whole) {
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < Vectors; ++v) hn::StoreU(sum[i][v], d, t.c + i * t.c_row + v * width);
    }
    return;
  }
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t n = std::clamp<std::int64_t>(t.columns - v * width, 0, width);
      store_n(d, sum[i][v], t.c + i * t.c_row + v * width, n);
    }
  }
}

#if HWY_TARGET == HWY_AVX3
inline constexpr Simd kTileSimd = Simd::kAvx512;
#elif HWY_TARGET == HWY_AVX2
inline constexpr Simd kTileSimd = Simd::kAvx2;
#else
inline constexpr Simd kTileSimd = Simd::kSse4;
#endif

/// Whether a table has the tile. A packed a belongs to a weight's gradient: it has many rows, and
/// wider tiles do not make it faster.
template <class Source>
constexpr bool wants_tile(int rows, int vectors) {
  return has_tile(kTileSimd, rows, vectors) && (!Source::kPackedA || vectors <= kPanelVectors);
}

template <class Source, int Rows, int Vectors>
constexpr void fill_tiles(TileTable& table) {
  if constexpr (wants_tile<Source>(Rows, Vectors)) {
    table[Rows][tile_column(Vectors)] = &tile<Source, Rows, Vectors>;
  }
  if constexpr (Vectors > 1) {
    fill_tiles<Source, Rows, Vectors / 2>(table);
  } else if constexpr (Rows > 1) {
    fill_tiles<Source, Rows - 1, kMostVectors>(table);
  }
}

/// The kernels of has_tile(); null if there is none.
template <class Source>
constexpr TileTable make_tiles() {
  TileTable table{};
  fill_tiles<Source, kMostRows, kMostVectors>(table);
  return table;
}

/// c = activation(c + bias) + residual over one row's columns, while they are in L1. Null pointers
/// mean that there is no bias or residual.
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
