// The tile of the product with a quantised b: some rows of a times some panels of b, over all of K.
// Compiled once per instruction set (see simd.h). matmul_quant.cc describes what is summed and in
// which order. Knows no threads and no loops over tiles.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_MATMUL_QUANT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_MATMUL_QUANT_TILE_INL_H_
#undef VOLTA_KERNELS_CPU_MATMUL_QUANT_TILE_INL_H_
#else
#define VOLTA_KERNELS_CPU_MATMUL_QUANT_TILE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/matmul_kernel-inl.h"
#include "kernels/cpu/matmul_quant_dot-inl.h"
#include "kernels/cpu/quant_rows.h"
#include "tensor/weight_format.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

/// How many vectors of integer sums fit the registers besides b and a (sums in f32 are kept in
/// memory), and the panels of the widest tile, which is for few rows.
#if HWY_TARGET == HWY_AVX3
constexpr int quant_sums(Quant quant, bool vnni) {
  if (!vnni) return 12;
  if (format_info(quant).scale_steps != 0) return 12;  // The sums of sub-blocks need as many again.
  return quant == Quant::kInt8 ? 28 : 24;
}
inline constexpr int kQuantPanels = 4;
#else
constexpr int quant_sums(Quant quant, bool) { return quant == Quant::kInt8 ? 8 : 4; }
inline constexpr int kQuantPanels = HWY_TARGET == HWY_AVX2 ? 2 : 1;
#endif
constexpr int most_quant_rows(Quant quant, bool vnni) {
  return quant_sums(quant, vnni) / kPanelVectors;
}

/// The distance at which b is prefetched. The hardware does not prefetch as far by itself. If b is
/// larger than the caches of a Zen 5 and in 4 bits, one row takes 0.85 of the time that it takes
/// without prefetches, and four rows 0.6. In 8 bits one row takes as long, four rows 0.85.
/// Distances from 2 to 4 KiB make little difference.
inline constexpr std::int64_t kPrefetchBytes = 3072;

/// Tiles with at most this many rows are limited by memory and have the simplest code. What makes
/// taller tiles faster makes these up to 2% slower (Zen 5, one row of 2048 x 5632 from memory).
inline constexpr int kMemoryBoundRows = 4;

/// The prefetches of the next slice of b, spread over the groups of this one: `step` bytes per
/// group. Without them the first tile of each slice waits for memory (Zen 5, 2048 x 5632 in 8 bits:
/// with them 16 rows take 0.73 of the time, 32 rows 0.86).
struct QuantAhead {
  const std::uint8_t* next;
  std::int64_t step;
  /// Prefetches into L2, because L1 is full of what is being multiplied.
  HWY_INLINE void fetch() {
    __builtin_prefetch(next, 0, 2);
    next += step;
  }
  /// The prefetches of `groups` groups, at most one for each cache line.
  HWY_INLINE void fetch_many(std::int64_t groups) {
    for (const std::uint8_t* end = next + groups * step; next < end; next += 64) {
      __builtin_prefetch(next, 0, 2);
    }
  }
};

/// Tiles with at least this many rows prefetch the next slice; only VNNI has such tiles. A product
/// with fewer rows has no slices, and is as fast as memory.
inline constexpr int kPrefetchingRows = 8;

struct QuantTile {
  QuantRows a;
  bool rests;                 ///< Whether any of a's rows has a rest.
  bool wide;                  ///< Whether any of a's rows is QuantRows::wide.
  const std::uint8_t* b;      ///< The first panel.
  std::int64_t panel_stride;  ///< Bytes.
  std::int64_t b_block;       ///< Steps that share one of b's scales.
  float* c;
  std::int64_t c_row;
  std::int64_t columns;
  QuantAhead ahead;
  std::int64_t rows;             ///< Only for AMX: the rows, and how the tile registers are
  TileConfiguration* registers;  ///< configured.
};
using QuantFunction = void (*)(QuantTile&);

/// The addresses of a tile's rows: a pointer to every fourth row, so that few registers are needed.
template <int Rows>
struct RowPlaces {
  const std::int8_t* fourth[(Rows + 3) / 4];
  std::int64_t stride, stride3;

  HWY_INLINE RowPlaces(const std::int8_t* a, std::int64_t bytes)
      : stride(bytes), stride3(3 * bytes) {
    for (int i = 0; i < Rows; i += 4) fourth[i / 4] = a + i * bytes;
  }
  HWY_INLINE void move(std::int64_t steps) {
    VOLTA_UNROLL
    for (int i = 0; i < Rows; i += 4) {
      fourth[i / 4] += steps;
      if (Rows > kMemoryBoundRows)
        asm("" : "+r"(fourth[i / 4]));  // Otherwise g++ computes each pointer from the first.
    }
  }
  HWY_INLINE const std::int8_t* at(int row) const {
    const int i = row % 4;
    return fourth[row / 4] + (i == 3 ? stride3 : i * stride);
  }
};

/// Adds four steps of b (eight with 4 bits) to the sums. `step` and `b` are the first of these
/// steps in a and b.
template <Quant Kind, bool Vnni, int Rows, int Panels, class Sum>
HWY_INLINE void add_group(const QuantTile& t, const RowPlaces<Rows>& a, std::int64_t step,
                          const std::uint8_t* HWY_RESTRICT b, QuantAhead& ahead,
                          Sum (&sum)[Rows][Panels * kPanelVectors]) {
  const I32 di;
  constexpr std::int64_t kBytes = lanes(I32()) * 4;
  // Otherwise g++ prefetches the cache lines of eight groups at once, more than the processor can
  // have in flight (b in memory; Zen 5: with this, 8 rows take 0.9 of the time, 12 rows 0.8; Zen 4
  // with 8 bits: one row 0.97, four rows 0.95).
  asm volatile("");
  if constexpr (Rows >= kPrefetchingRows) ahead.fetch();
  VOLTA_UNROLL
  for (int p = 0; p < Panels; ++p) {
    VI low[kPanelVectors], high[kPanelVectors];
    VOLTA_UNROLL
    for (int u = 0; u < kPanelVectors; ++u) {
      const std::uint8_t* bytes = b + p * t.panel_stride + u * kBytes;
      // Once per cache line; with SSE4, twice.
      if (u * kBytes % 64 == 0) hwy::Prefetch(bytes + kPrefetchBytes);
      VI loaded = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(bytes));
#if HWY_TARGET == HWY_AVX3
      asm("" : "+v"(loaded.raw));  // Keeps it in its register; g++ 12 would load it for every row.
#endif
      low[u] = loaded;
      if constexpr (Kind == Quant::kInt4) {
        const VI mask = hn::Set(di, 0x0F0F0F0F);
        high[u] = hn::And(hn::ShiftRight<4>(low[u]), mask);
        low[u] = hn::And(low[u], mask);
      }
    }
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      const std::int8_t* row = a.at(i) + step;
      VOLTA_UNROLL
      for (int u = 0; u < kPanelVectors; ++u) {
        Sum& to = sum[i][p * kPanelVectors + u];
        to = dot<Vnni>(to, low[u], four_bytes(row));
        if constexpr (Kind == Quant::kInt4) to = dot<Vnni>(to, high[u], four_bytes(row + 16));
      }
    }
  }
}

/// Bytes of 32 steps of a column.
template <Quant Kind>
inline constexpr std::int64_t kGroupBytes = Kind == Quant::kInt4 ? 16 : 32;

/// sum += the products of 32 steps of K, in integers. `a` and `b` point to the first step.
template <Quant Kind, bool Vnni, int Rows, int Panels>
HWY_INLINE void sum_block(const QuantTile& t, const RowPlaces<Rows>& a,
                          const std::uint8_t* HWY_RESTRICT b, QuantAhead& ahead,
                          VI (&sum)[Rows][Panels * kPanelVectors]) {
  constexpr int kGroups = Kind == Quant::kInt4 ? 4 : 8;
  constexpr std::int64_t kGroupBytes = kPanelVectors * lanes(I32()) * 4;
  if constexpr (Vnni) {
    VOLTA_UNROLL
    for (std::int64_t g = 0; g < kGroups; ++g) {
      add_group<Kind, Vnni, Rows, Panels>(t, a, g * 4, b + g * kGroupBytes, ahead, sum);
    }
  } else if constexpr (Kind == Quant::kInt8) {
    VOLTA_NO_UNROLL
    for (std::int64_t g = 0; g < kGroups; ++g) {
      add_group<Kind, Vnni, Rows, Panels>(t, a, g * 4, b + g * kGroupBytes, ahead, sum);
    }
  } else {
    const D16 d16;
    V16 pairs[Rows][Panels * kPanelVectors];
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < Panels * kPanelVectors; ++v) pairs[i][v] = hn::Zero(d16);
    }
    VOLTA_NO_UNROLL
    for (std::int64_t g = 0; g < kGroups; ++g) {
      add_group<Kind, Vnni, Rows, Panels>(t, a, g * 4, b + g * kGroupBytes, ahead, pairs);
    }
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < Panels * kPanelVectors; ++v) {
        sum[i][v] = hn::Add(sum[i][v], add_products(pairs[i][v], hn::Set(d16, 1)));
      }
    }
  }
}

template <int Rows, int Vectors>
using Sums = VI[Rows][Vectors];

/// Stores a vector between instructions that multiply.
HWY_INLINE void store_aside(V32 x, float* to) {
#if HWY_TARGET == HWY_AVX3
  // On Zen 5 a store of 512 bits takes up to a cycle of the units that multiply; two halves take
  // none.
  const hn::Half<F32> half;
  hn::StoreU(hn::LowerHalf(half, x), half, to);
  hn::StoreU(hn::UpperHalf(half, x), half, to + lanes(half));
#else
  hn::StoreU(x, F32(), to);
#endif
}

/// The first of a tile's rows of sums. Rows are `stride` floats apart.
template <class Float>
struct SumRows {
  Float* row;
  std::int64_t stride;
};

/// A tile's sums in f32. They are in memory by design: if they were vectors, the compiler would
/// spill and reload them around the integer sums, which take all registers.
template <int Rows, int Vectors>
struct Totals {
  alignas(64) float values[Rows][Vectors][lanes(F32())];
  HWY_INLINE V32 get(int row, int v) const { return hn::Load(F32(), values[row][v]); }
  HWY_INLINE void set(int row, int v, V32 x) {
    if constexpr (Rows > kMemoryBoundRows) {
      store_aside(x, values[row][v]);
    } else {
      hn::Store(x, F32(), values[row][v]);
    }
  }
  /// += sums * b's scales * a row's scale.
  HWY_INLINE void add(int row, int v, V32 x, V32 scale) {
    set(row, v, hn::MulAdd(x, scale, get(row, v)));
  }
};

/// The sums of a tile as vectors, which the compiler keeps in registers.
template <int Rows, int Vectors>
struct Held {
  V32 values[Rows][Vectors];
  HWY_INLINE V32 get(int row, int v) const { return values[row][v]; }
  HWY_INLINE void set(int row, int v, V32 x) { values[row][v] = x; }
  HWY_INLINE void add(int row, int v, V32 x, V32 scale) {
    values[row][v] = hn::MulAdd(x, scale, values[row][v]);
  }
};

/// The initial value of sums.
alignas(64) inline constexpr float kZeros[kQuantPanels * kPanelVectors * lanes(F32())] = {};

/// The integer sums of `steps` steps (a multiple of 32), beginning at the rows' offsets.
template <Quant Kind, bool Vnni, int Rows, int Panels>
HWY_INLINE void sum_steps(const QuantTile& t, const IntegerRows& a, std::int64_t step,
                          std::int64_t steps, const std::int32_t* offset,
                          const std::uint8_t* HWY_RESTRICT b, QuantAhead& ahead,
                          Sums<Rows, Panels * kPanelVectors>& sum) {
  constexpr std::int64_t kPanelBytes = kPanelVectors * lanes(I32()) * kGroupBytes<Kind>;
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    const VI begin = hn::Set(I32(), offset[i * a.offsets]);
    VOLTA_UNROLL
    for (int v = 0; v < Panels * kPanelVectors; ++v) sum[i][v] = begin;
  }
  RowPlaces<Rows> q(a.q + step, t.a.stride);
  const std::uint8_t* const end = b + steps / kRowGroup * kPanelBytes;
  do {
    sum_block<Kind, Vnni, Rows, Panels>(t, q, b, ahead, sum);
    q.move(kRowGroup);
    b += kPanelBytes;
  } while (b != end);
}

/// The scales of the panels' columns at `scales`.
template <int Panels>
HWY_INLINE void load_scales(const QuantTile& t, const std::uint8_t* HWY_RESTRICT scales,
                            V32 (&to)[Panels * kPanelVectors]) {
  const F32 d;
  VOLTA_UNROLL
  for (int v = 0; v < Panels * kPanelVectors; ++v) {
    const auto* at = scales + v / kPanelVectors * t.panel_stride + v % kPanelVectors * lanes(d) * 2;
    to[v] = load(d, reinterpret_cast<const F16*>(at));
  }
}

/// total += the rests of the first row's block `block`, for one panel, whose part of b begins at
/// `b`.
template <Quant Kind, bool Vnni>
HWY_INLINE void add_row_rests(const QuantTile& t, std::int64_t block, unsigned rests,
                              const std::uint8_t* b, Held<1, kPanelVectors>& total) {
  constexpr std::int64_t kWidth = kPanelVectors * lanes(F32());
  const F32 d;
  const std::int64_t scales_at = t.b_block / kRowGroup * kGroupBytes<Kind> * kWidth;
  for (std::int64_t i = 0; i < t.a.block / kRowGroup; ++i) {
    if ((rests >> i & 1) == 0) continue;
    const std::int64_t part = block * (t.a.block / kRowGroup) + i;
    const std::uint8_t* b_block = b + i * kRowGroup / t.b_block * (scales_at + kWidth * 2);
    const std::int64_t within = i * kRowGroup % t.b_block / kRowGroup;
    Sums<1, kPanelVectors> sum;
    QuantAhead none{b, 0};
    sum_steps<Kind, Vnni, 1, 1>(t, t.a.rest, part * kRowGroup, kRowGroup, t.a.rest.offset + part,
                                b_block + within * kGroupBytes<Kind> * kWidth, none, sum);
    V32 b_scale[kPanelVectors];
    load_scales<1>(t, b_block + scales_at, b_scale);
    const V32 scale = hn::Set(d, t.a.rest.scale[part]);
    for (int v = 0; v < kPanelVectors; ++v) {
      total.add(0, v, hn::Mul(hn::ConvertTo(d, sum[0][v]), b_scale[v]), scale);
    }
  }
}

/// total[rows, panels, columns of a panel] += the rests of a's block `block`, whose part of b
/// begins at `b`. Few rows have rests, so they are added one row and one panel at a time, by a
/// function that all tiles of a format share.
template <auto AddRowRests>
HWY_NOINLINE void add_rests(const QuantTile& t, std::int64_t rows, std::int64_t panels,
                            std::int64_t block, const std::uint8_t* b, float* total) {
  const F32 d;
  for (std::int64_t i = 0; i < rows; ++i) {
    const unsigned rests = t.a.rests[i * t.a.blocks + block];
    if (rests == 0) continue;
    QuantTile row = t;
    row.a = t.a.from(i);
    for (std::int64_t p = 0; p < panels; ++p) {
      float* const to = total + (i * panels + p) * kPanelVectors * lanes(d);
      Held<1, kPanelVectors> sum;
      for (int v = 0; v < kPanelVectors; ++v) sum.set(0, v, hn::Load(d, to + v * lanes(d)));
      AddRowRests(row, block, rests, b + p * t.panel_stride, sum);
      for (int v = 0; v < kPanelVectors; ++v) hn::Store(sum.get(0, v), d, to + v * lanes(d));
    }
  }
}

/// to = from + part(row, vector) * the row's scale. Scales are `scales` apart.
template <int Rows, int Vectors, class Part>
HWY_INLINE void add_scaled(const Part& part, const float* scale, std::int64_t scales,
                           SumRows<const float> from, SumRows<float> to) {
  const F32 d;
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    const V32 row_scale = hn::Set(d, *scale);
    VOLTA_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t at = v * lanes(d);
      const V32 sum = hn::MulAdd(part(i, v), row_scale, hn::LoadU(d, from.row + at));
      if constexpr (Rows > kMemoryBoundRows) {
        store_aside(sum, to.row + at);
      } else {
        hn::StoreU(sum, d, to.row + at);
      }
    }
    scale += scales;
    from.row += from.stride;
    to.row += to.stride;
    if (Rows > kMemoryBoundRows) {  // Otherwise g++ computes each one from the first.
      asm("" : "+r"(scale), "+r"(from.row), "+r"(to.row));
    }
  }
}

/// c[Rows, Panels] = a b.
// SAFETY: the caller owns Rows rows of a, Panels whole panels of b and the valid columns of c.
template <Quant Kind, bool Vnni, int Rows, int Panels>
void quant_tile(QuantTile& t) {
  constexpr int kVectors = Panels * kPanelVectors;
  const F32 d;
  constexpr std::int64_t kWidth = lanes(F32()), kPanelWidth = kPanelVectors * kWidth;
  const std::int64_t scales_at = t.b_block / kRowGroup * kGroupBytes<Kind> * kPanelWidth;
  const IntegerRows a = t.a.whole;
  const std::uint8_t* HWY_RESTRICT b = t.b;
  const std::int32_t* offset = a.offset;
  QuantAhead ahead = t.ahead;
  Totals<Rows, kVectors> total;
  const bool whole = t.columns >= kVectors * kWidth;
  // Sums begin as zeros, are then in `total`, and the last block's go to c.
  constexpr bool kDirect = Rows > kMemoryBoundRows;
  SumRows<const float> from{kDirect ? kZeros : total.values[0][0], kDirect ? 0 : kVectors * kWidth};
  SumRows<float> to{total.values[0][0], kVectors * kWidth};
  if constexpr (!kDirect) {
    for (int i = 0; i < Rows; ++i) {
      for (int v = 0; v < kVectors; ++v) total.set(i, v, hn::Zero(d));
    }
  }
  bool last = false;
  for (std::int64_t block = 0; block < t.a.blocks; ++block) {
    const std::uint8_t* const b_block = b;
    const std::int64_t begin = block * t.a.block;
    unsigned rests = 0;
    for (int i = 0; t.rests && i < Rows; ++i) rests |= t.a.rests[i * t.a.blocks + block];
    last = kDirect && block + 1 == t.a.blocks && whole && rests == 0;
    if (last) to = {t.c, t.c_row};
    // With 8 bits, blocks of a are blocks of b. With 4 bits they may be longer, and their sums are
    // in memory, too.
    [[maybe_unused]] Totals<Rows, kVectors> part;
    std::int64_t step = 0;
    do {
      Sums<Rows, kVectors> sum;
      sum_steps<Kind, Vnni, Rows, Panels>(t, a, begin + step, t.b_block, offset++, b, ahead, sum);
      V32 b_scale[kVectors];
      load_scales<Panels>(t, b + scales_at, b_scale);
      b += scales_at + kPanelWidth * 2;
      if constexpr (Kind == Quant::kInt8) {
        add_scaled<Rows, kVectors>(
            [&](int i, int v) HWY_ATTR { return hn::Mul(hn::ConvertTo(d, sum[i][v]), b_scale[v]); },
            a.scale + block, a.scales, from, to);
      } else {
        VOLTA_UNROLL
        for (int i = 0; i < Rows; ++i) {
          VOLTA_UNROLL
          for (int v = 0; v < kVectors; ++v) {
            const V32 exact = hn::ConvertTo(d, sum[i][v]);
            if (step == 0) {
              part.set(i, v, hn::Mul(exact, b_scale[v]));
            } else {
              part.add(i, v, exact, b_scale[v]);
            }
          }
        }
      }
      step += t.b_block;
    } while (Kind != Quant::kInt8 && step < t.a.block);
    if constexpr (Kind == Quant::kInt4) {
      add_scaled<Rows, kVectors>([&](int i, int v) HWY_ATTR { return part.get(i, v); },
                                 a.scale + block, a.scales, from, to);
    }
    if (last) break;
    if (rests != 0) {
      add_rests<&add_row_rests<Kind, Vnni>>(t, Rows, Panels, block, b_block, total.values[0][0]);
    }
    if constexpr (kDirect) from = {total.values[0][0], kVectors * kWidth};
  }
  t.ahead = ahead;
  if (last) return;
  VOLTA_NO_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_NO_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t n = std::clamp<std::int64_t>(t.columns - v * kWidth, 0, kWidth);
      const V32 sum = t.a.blocks == 0 ? hn::Zero(d) : total.get(i, v);
      store_n(d, sum, t.c + i * t.c_row + v * kWidth, n);
    }
  }
}

}  // namespace
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_MATMUL_QUANT_TILE_INL_H_
