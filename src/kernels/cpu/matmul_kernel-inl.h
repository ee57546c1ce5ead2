// The pieces of the matrix product that live in vectors: the tile of c that stays in registers
// over a K block, and the epilogue. Compiled once per instruction set (see simd.h). Knows no
// threads and no loops around a tile; those are in matmul_tiles.cc.

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
#include "kernels/cpu/matmul_pack-inl.h"
#include "kernels/cpu/matmul_plan.h"

// The loops over a tile's vectors have to vanish for its sums to live in registers. Not so under a
// sanitizer, which would check every copy of every access: minutes of compiling.
// VOLTA_NO_UNROLL: the contrary, where a compiler would unroll into more than the registers hold.
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
  const void* b;       ///< Panel p, group g of steps at b[p * panel_stride + g * b_step].
  std::int64_t b_step;
  std::int64_t panel_stride;
  std::int64_t prefetch;  ///< Elements of b to ask for ahead; 0: what is at hand.
  std::int64_t k;
  float* c;
  std::int64_t c_row;
  std::int64_t columns;  ///< Valid columns of c; b's panels are readable beyond them.
  bool accumulate;       ///< Go on from c (later K blocks) instead of from zero.
};
using TileFunction = void (*)(const Tile&);

// What panels of b hold. `Element` is what a step of one column is stored as, or a group of kSteps
// of them; column(p, s) is the vector of step s of the group at p.
struct F32Panels {
  using Element = float;
  static constexpr int kSteps = 1;
  static V32 column(const float* p, int) { return hn::LoadU(F32(), p); }
};
struct F16Panels {
  using Element = F16;
  static constexpr int kSteps = 1;
  static V32 column(const F16* p, int) { return load(F32(), p); }
};
/// bf16 in pairs of steps: the even one in the low half of 32 bits, the odd one in the high half.
struct BF16Panels {
  using Element = std::uint32_t;
  static constexpr int kSteps = 2;
  static V32 column(const std::uint32_t* p, int s) {
    const hn::RebindToUnsigned<F32> d;
    const auto pair = hn::LoadU(d, p);
    return hn::BitCast(F32(),
                       s == 0 ? hn::ShiftLeft<16>(pair) : hn::And(pair, hn::Set(d, 0xFFFF0000u)));
  }
};

/// Steps [first, last) of one group: sum[i][v] += a * b.
template <int Rows, int Panels, bool PackedA, class Source>
HWY_INLINE void multiply_steps(const Tile& t, const float* HWY_RESTRICT a,
                               const typename Source::Element* HWY_RESTRICT b, int steps,
                               V32 (&sum)[Rows][Panels * kPanelVectors]) {
  constexpr int kVectors = Panels * kPanelVectors;
  const F32 d;
  const std::int64_t width = lanes(d);
  VOLTA_UNROLL
  for (int s = 0; s < steps; ++s) {
    V32 column[kVectors];
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const auto* from = b + v / kPanelVectors * t.panel_stride + v % kPanelVectors * width;
      column[v] = Source::column(from, s);
      // One row reads so many panels at once that the hardware sees far enough by itself.
      if constexpr (Rows > 1 && !PackedA) {
        const std::int64_t at = v % kPanelVectors * width * std::int64_t{sizeof(*from)};
        if (s == 0 && at % 64 == 0) hwy::Prefetch(from + t.prefetch);  // Once a cache line.
      }
    }
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      const V32 x = hn::Set(d, PackedA ? a[s * Rows + i] : a[i * t.a_row + s]);
      VOLTA_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(x, column[v], sum[i][v]);
    }
  }
}

/// c[Rows, Panels] = a b, or c += a b when accumulating. Every lane of an accumulator is its own
/// chain of multiply-adds over k in order, from one K block into the next, so that neither Rows nor
/// Panels nor the blocks can be told from the result; and columns of padding never reach valid
/// ones.
// SAFETY: the caller owns Rows rows of a, `k` steps of Panels whole panels of b (groups of kSteps
// are whole), and the valid columns of Rows rows of c.
template <int Rows, int Panels, bool PackedA, class Source>
void tile(const Tile& t) {
  constexpr int kVectors = Panels * kPanelVectors;
  const F32 d;
  const std::int64_t width = lanes(d);
  const bool whole = t.columns >= kVectors * width;
  V32 sum[Rows][kVectors];
  if (t.accumulate && whole) {
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::LoadU(d, t.c + i * t.c_row + v * width);
    }
  } else {
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t n = std::clamp<std::int64_t>(t.columns - v * width, 0, width);
        sum[i][v] = t.accumulate ? load_n(d, t.c + i * t.c_row + v * width, n) : hn::Zero(d);
      }
    }
  }
  const float* HWY_RESTRICT a = t.a;
  const auto* HWY_RESTRICT b = static_cast<const typename Source::Element*>(t.b);
  const std::int64_t groups = t.k / Source::kSteps;
  for (std::int64_t g = 0; g < groups; ++g) {
    multiply_steps<Rows, Panels, PackedA, Source>(t, a, b, Source::kSteps, sum);
    a += PackedA ? Rows * Source::kSteps : Source::kSteps;
    b += t.b_step;
  }
  if constexpr (Source::kSteps == 2) {  // An odd K: half a group is left.
    if (t.k % 2 != 0) multiply_steps<Rows, Panels, PackedA, Source>(t, a, b, 1, sum);
  }
  if (whole) {
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[i][v], d, t.c + i * t.c_row + v * width);
    }
    return;
  }
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t n = std::clamp<std::int64_t>(t.columns - v * width, 0, width);
      store_n(d, sum[i][v], t.c + i * t.c_row + v * width, n);
    }
  }
}

/// The kernels for 1..kTileRows rows by 1..kMostPanels panels; null where a tile would not fit the
/// registers.
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

template <bool PackedA, class Source, int Rows, int Panels>
constexpr void fill_tiles(TileTable& table) {
  // A packed a has many rows (it is a weight's gradient): the widest tiles suffice.
  if constexpr (PackedA ? Panels == 1 : tile_fits(Rows, Panels)) {
    table[Rows][Panels] = &tile<Rows, Panels, PackedA, Source>;
  }
  if constexpr (Panels > 1) {
    fill_tiles<PackedA, Source, Rows, Panels - 1>(table);
  } else if constexpr (Rows > 1) {
    fill_tiles<PackedA, Source, Rows - 1, kMostPanels>(table);
  }
}

template <bool PackedA, class Source>
constexpr TileTable make_tiles() {
  TileTable table{};
  fill_tiles<PackedA, Source, kTileRows, kMostPanels>(table);
  return table;
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
