// The microkernel of matrix products whose b is Q4_K, Q5_K or Q6_K. A block of b has 256 steps and
// an f16 scale; its sub-blocks of 32 or 16 steps have integer scales (tensor/weight_format.h
// describes the formats, kernels/cpu/quant.h the layout of panels). Compiled once per instruction
// set (see simd.h).
//
// Blocks of a have the size of blocks of b. Within a block, sums are exact, in integers:
//   part = sum of (sub-block sum * its scale),   least = sum of (its minimum * -(sum of a in it)).
// Both are rounded to f32 once, and then c += (part * scale + least * minimum) * a's scale. So
// neither the size of the tile nor the instructions that are used change the bits of a result.
//
// With VNNI, the speed of a tile with many rows is limited by the processor's multipliers.
// Multiplying the sums of sub-blocks by their scales needs the same multipliers. So the sums of two
// sub-blocks share a lane, with 16 bits each, and one instruction multiplies both by their scales
// and adds the products to `part`. Where a sum may need more bits (QuantRows::wide, only for rows
// with very even magnitudes), each sub-block takes an instruction of its own. On a Zen 4, these
// units also multiply floats, rotate and shift by VPSHLDD. Plain shifts, additions, conversions and
// broadcasts from memory take no time from them.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_MATMUL_K_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_MATMUL_K_TILE_INL_H_
#undef VOLTA_KERNELS_CPU_MATMUL_K_TILE_INL_H_
#else
#define VOLTA_KERNELS_CPU_MATMUL_K_TILE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/matmul_k_sums-inl.h"
#include "kernels/cpu/matmul_quant_tile-inl.h"
#include "tensor/weight_format.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

/// Widens a row of signed bytes, one for each of the panels' columns, to 32 bits.
template <int Panels>
HWY_INLINE void load_bytes(const QuantTile& t, const std::uint8_t* HWY_RESTRICT bytes,
                           VI (&to)[Panels * kPanelVectors]) {
  const I32 di;
  const hn::Rebind<std::int8_t, I32> d8;
  VOLTA_UNROLL
  for (int v = 0; v < Panels * kPanelVectors; ++v) {
    const auto* at = bytes + v / kPanelVectors * t.panel_stride + v % kPanelVectors * lanes(di);
    to[v] = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(at)));
  }
}

/// Widens two rows of signed bytes to 16 bits, `low` in the lower half of each lane.
template <int Panels>
HWY_INLINE void load_pairs(const QuantTile& t, const std::uint8_t* HWY_RESTRICT low,
                           const std::uint8_t* HWY_RESTRICT high,
                           VI (&to)[Panels * kPanelVectors]) {
  VI lower[Panels * kPanelVectors];
  load_bytes<Panels>(t, low, lower);
  load_bytes<Panels>(t, high, to);
  VOLTA_UNROLL
  for (int v = 0; v < Panels * kPanelVectors; ++v) {
    to[v] = hn::Or(hn::ShiftLeft<16>(to[v]), hn::And(lower[v], hn::Set(I32(), 0xFFFF)));
  }
}

/// The parts of a tile's sums: in registers if there are enough of them, because storing and
/// loading them for every sub-block would take as long as its products.
template <int Rows, int Vectors>
struct HeldParts {
  VI values[Rows][Vectors];
  HWY_INLINE VI get(int row, int v) const { return values[row][v]; }
  HWY_INLINE void set(int row, int v, VI x) { values[row][v] = x; }
};
template <int Rows, int Vectors>
struct StoredParts {
  alignas(64) std::int32_t values[Rows][Vectors][lanes(I32())];
  HWY_INLINE VI get(int row, int v) const { return hn::Load(I32(), values[row][v]); }
  HWY_INLINE void set(int row, int v, VI x) { hn::Store(x, I32(), values[row][v]); }
};
template <bool Vnni, int Rows, int Vectors>
using Parts = std::conditional_t<Vnni, HeldParts<Rows, Vectors>, StoredParts<Rows, Vectors>>;

/// Sets all parts of a tile to zero.
template <int Rows, int Vectors, class Part>
HWY_INLINE void clear(Part& part) {
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < Vectors; ++v) part.set(i, v, hn::Zero(I32()));
  }
}

/// The value from which the sums of a sub-block are added up: zero if b has minimums, otherwise the
/// offset of a's row.
template <Quant Kind>
HWY_INLINE VI first_sum(const std::int32_t* offset) {
  return KPanel<Kind>::kHasMinimums ? hn::Zero(I32()) : hn::Set(I32(), *offset);
}

/// Sets all sums of a tile to their first values. `offset` is the first row's.
template <Quant Kind, int Rows, int Vectors>
HWY_INLINE void begin_sums(const std::int32_t* offset, std::int64_t offsets,
                           Sums<Rows, Vectors>& sum) {
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < Vectors; ++v) sum[i][v] = first_sum<Kind>(offset + i * offsets);
  }
}

/// part += sum * the scales of sub-block `sub`.
template <Quant Kind, int Rows, int Panels, class Part>
HWY_INLINE void add_scaled_sums(const QuantTile& t, const std::uint8_t* HWY_RESTRICT b,
                                std::int64_t sub, const Sums<Rows, Panels * kPanelVectors>& sum,
                                Part& part) {
  constexpr int kVectors = Panels * kPanelVectors;
  VI scale[kVectors];
  load_bytes<Panels>(t, b + KPanel<Kind>::kScales + sub * KPanel<Kind>::kWidth, scale);
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      part.set(i, v, hn::Add(part.get(i, v), hn::Mul(sum[i][v], scale[v])));
    }
  }
}

/// part += sub-block `sub` of the block of b that begins at `b`, times its integer scales. The
/// integers of its rows of a begin at `q`, and `offset` is the first row's. Moves `q` and `offset`
/// to the next sub-block.
template <Quant Kind, bool Vnni, int Rows, int Panels, class Part>
HWY_INLINE void add_sub_block(const QuantTile& t, RowPlaces<Rows>& q, const std::int32_t*& offset,
                              std::int64_t offsets, const std::uint8_t* HWY_RESTRICT b,
                              std::int64_t sub, Part& part) {
  constexpr int kVectors = Panels * kPanelVectors;
  Sums<Rows, kVectors> sum;
  begin_sums<Kind, Rows, kVectors>(offset, offsets, sum);
  sum_sub_block<Kind, Vnni, Rows, Panels>(t, q, b, sub, sum);
  add_scaled_sums<Kind, Rows, Panels>(t, b, sub, sum, part);
  q.move(KPanel<Kind>::kSteps);
  ++offset;
}

/// add_sub_block() for the two sub-blocks `sub` and `sub` + 1. Unless t.wide is set, each of their
/// sums fits into 16 bits. The sum of the first one is shifted to the upper half of its lane, and
/// that of the second one is added up in the lower half. The lower half begins at 2^15: so it stays
/// positive, and no borrow changes the upper half.
template <Quant Kind, bool Vnni, int Rows, int Panels, class Part>
HWY_INLINE void add_two_sub_blocks(const QuantTile& t, RowPlaces<Rows>& q,
                                   const std::int32_t*& offset, std::int64_t offsets,
                                   const std::uint8_t* HWY_RESTRICT b, std::int64_t sub,
                                   Part& part) {
  using Panel = KPanel<Kind>;
  constexpr int kVectors = Panels * kPanelVectors;
  const VI bias = hn::Set(I32(), 0x8000);
  Sums<Rows, kVectors> sum;
  begin_sums<Kind, Rows, kVectors>(offset, offsets, sum);
  sum_sub_block<Kind, Vnni, Rows, Panels>(t, q, b, sub, sum);
  q.move(Panel::kSteps);
  ++offset;
  if (HWY_UNLIKELY(t.wide)) {
    add_scaled_sums<Kind, Rows, Panels>(t, b, sub, sum, part);
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(I32());
    }
  }
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    const VI first = hn::Add(first_sum<Kind>(offset + i * offsets), bias);
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Add(hn::ShiftLeft<16>(sum[i][v]), first);
  }
  sum_sub_block<Kind, Vnni, Rows, Panels>(t, q, b, sub + 1, sum);
  q.move(Panel::kSteps);
  ++offset;
  if (HWY_UNLIKELY(t.wide)) {
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Sub(sum[i][v], bias);
    }
    add_scaled_sums<Kind, Rows, Panels>(t, b, sub + 1, sum, part);
    return;
  }
  const std::uint8_t* const scales = b + Panel::kScales + sub * Panel::kWidth;
  VI scale[kVectors];
  load_pairs<Panels>(t, scales + Panel::kWidth, scales, scale);
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      part.set(i, v, add_pair_products<Vnni>(part.get(i, v), hn::Xor(sum[i][v], bias), scale[v]));
    }
  }
}

/// least = the sum of `Subs` sub-blocks' minimums, a row of bytes for each, times `offset`, the
/// negated sums of a.
template <bool Vnni, int Subs, int Rows, int Panels>
HWY_INLINE void sum_minimums(const QuantTile& t, const std::uint8_t* HWY_RESTRICT minimums,
                             const std::int32_t* offset, std::int64_t offsets,
                             Sums<Rows, Panels * kPanelVectors>& least) {
  constexpr int kVectors = Panels * kPanelVectors;
  constexpr std::int64_t kWidth = kPanelVectors * lanes(F32());
  if constexpr (Subs == 1) {
    VI minimum[kVectors];
    load_bytes<Panels>(t, minimums, minimum);
    for (int i = 0; i < Rows; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        least[i][v] = hn::Mul(minimum[v], hn::Set(I32(), offset[i * offsets]));
      }
    }
    return;
  }
  // Sums of 32 integers of a fit into 16 bits. So two sub-blocks are added at a time.
  const hn::FixedTag<std::int32_t, 4> d4;
  const hn::Rebind<std::int16_t, decltype(d4)> half4;
  alignas(16) std::int16_t pairs[Rows][Subs];
  for (int i = 0; i < Rows; ++i) {
    for (int s = 0; s < Subs; s += 4) {
      const auto four = hn::LoadU(d4, offset + i * offsets + s);
      hn::StoreU(hn::DemoteTo(half4, four), half4, pairs[i] + s);
    }
  }
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) least[i][v] = hn::Zero(I32());
  }
  VOLTA_UNROLL
  for (int s = 0; s < Subs; s += 2) {
    VI minimum[kVectors];
    load_pairs<Panels>(t, minimums + s * kWidth, minimums + (s + 1) * kWidth, minimum);
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      std::int32_t pair;
      std::memcpy(&pair, pairs[i] + s, sizeof(pair));
      VOLTA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        least[i][v] = add_pair_products<Vnni>(least[i][v], minimum[v], hn::Set(I32(), pair));
      }
    }
  }
}

/// total += (part * scale + least * minimum) * a's scale, for `Subs` sub-blocks of the block at
/// `b`, beginning with `sub`. `offset` is that of the first row and sub-block.
template <Quant Kind, bool Vnni, int Subs, int Rows, int Panels, class Part, class Total>
HWY_INLINE void add_block(const QuantTile& t, const std::uint8_t* HWY_RESTRICT b, std::int64_t sub,
                          const Part& part, const std::int32_t* offset, std::int64_t offsets,
                          const float* scale, std::int64_t scales, Total& total) {
  using Panel = KPanel<Kind>;
  constexpr int kVectors = Panels * kPanelVectors;
  const F32 d;
  V32 sum[Rows][kVectors], b_scale[kVectors];
  load_scales<Panels>(t, b + Panel::kScale, b_scale);
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sum[i][v] = hn::Mul(hn::ConvertTo(d, part.get(i, v)), b_scale[v]);
    }
  }
  if constexpr (Panel::kHasMinimums) {
    Sums<Rows, kVectors> least;
    sum_minimums<Vnni, Subs, Rows, Panels>(t, b + Panel::kMinimums + sub * Panel::kWidth, offset,
                                           offsets, least);
    V32 b_minimum[kVectors];
    load_scales<Panels>(t, b + Panel::kMinimum, b_minimum);
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sum[i][v] = hn::MulAdd(hn::ConvertTo(d, least[i][v]), b_minimum[v], sum[i][v]);
      }
    }
  }
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    const V32 row_scale = hn::Set(d, scale[i * scales]);
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) total.add(i, v, sum[i][v], row_scale);
  }
}

/// total += the rests of the first row's block `block`, for one panel, whose part of b begins at
/// `b`.
template <Quant Kind, bool Vnni>
HWY_INLINE void add_k_row_rests(const QuantTile& t, std::int64_t block, unsigned rests,
                                const std::uint8_t* b, Held<1, kPanelVectors>& total) {
  constexpr std::int64_t kGroups = kMaxBlock / kRowGroup;
  constexpr int kSubs = static_cast<int>(kRowGroup / KPanel<Kind>::kSteps);
  const IntegerRows a = t.a.rest;
  for (std::int64_t i = 0; i < kGroups; ++i) {
    if ((rests >> i & 1) == 0) continue;
    const std::int64_t group = block * kGroups + i;
    Parts<Vnni, 1, kPanelVectors> part;
    clear<1, kPanelVectors>(part);
    const std::int32_t* offset = a.offset + group * kSubs;
    RowPlaces<1> q(a.q + group * kRowGroup, t.a.stride);
    for (std::int64_t sub = i * kSubs; sub < (i + 1) * kSubs; ++sub) {
      add_sub_block<Kind, Vnni, 1, 1>(t, q, offset, a.offsets, b, sub, part);
    }
    add_block<Kind, Vnni, kSubs, 1, 1>(t, b, i * kSubs, part, a.offset + group * kSubs, a.offsets,
                                       a.scale + group, a.scales, total);
  }
}

/// c = total[rows, panels, columns of a panel].
HWY_NOINLINE void store_totals(const QuantTile& t, std::int64_t rows, std::int64_t panels,
                               const float* total) {
  const F32 d;
  const std::int64_t width = panels * kPanelVectors * lanes(d);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < t.columns; j += lanes(d)) {
      const V32 sum = hn::Load(d, total + i * width + j);
      store_n(d, sum, t.c + i * t.c_row + j, std::min(lanes(d), t.columns - j));
    }
  }
}

/// c[Rows, Panels] = a b.
// SAFETY: the caller owns Rows rows of a, Panels whole panels of b and the valid columns of c.
template <Quant Kind, bool Vnni, int Rows, int Panels>
void k_tile(QuantTile& t) {
  using Panel = KPanel<Kind>;
  constexpr int kVectors = Panels * kPanelVectors;
  const F32 d;
  const IntegerRows a = t.a.whole;
  const std::uint8_t* HWY_RESTRICT b = t.b;
  Totals<Rows, kVectors> total;
  for (int i = 0; i < Rows; ++i) {
    for (int v = 0; v < kVectors; ++v) total.set(i, v, hn::Zero(d));
  }
  for (std::int64_t block = 0; block < t.a.blocks; ++block) {
    Parts<Vnni, Rows, kVectors> part;
    clear<Rows, kVectors>(part);
    const std::int32_t* offset = a.offset + block * Panel::kSubs;
    RowPlaces<Rows> q(a.q + block * kMaxBlock, t.a.stride);
    VOLTA_NO_UNROLL
    for (std::int64_t sub = 0; sub < Panel::kSubs;) {
      // Tiles with few rows are limited by memory. Sums of Q5_K take more than 16 bits in most
      // rows.
      if constexpr (Vnni && Rows > kMemoryBoundRows && Kind != Quant::kQ5K) {
        add_two_sub_blocks<Kind, Vnni, Rows, Panels>(t, q, offset, a.offsets, b, sub, part);
        sub += 2;
      } else {
        add_sub_block<Kind, Vnni, Rows, Panels>(t, q, offset, a.offsets, b, sub, part);
        ++sub;
      }
    }
    add_block<Kind, Vnni, Panel::kSubs, Rows, Panels>(t, b, 0, part,
                                                      a.offset + block * Panel::kSubs, a.offsets,
                                                      a.scale + block, a.scales, total);
    unsigned rests = 0;
    for (int i = 0; t.rests && i < Rows; ++i) rests |= t.a.rests[i * t.a.blocks + block];
    if (rests != 0) {
      add_rests<&add_k_row_rests<Kind, Vnni>>(t, Rows, Panels, block, b, total.values[0][0]);
    }
    b += format_block_bytes(Kind, kMaxBlock) * Panel::kWidth +
         (Panel::kHasMinimums ? Encoding::kWiderScales * Panel::kWidth : 0);
  }
  store_totals(t, Rows, Panels, total.values[0][0]);
}

}  // namespace
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_MATMUL_K_TILE_INL_H_
