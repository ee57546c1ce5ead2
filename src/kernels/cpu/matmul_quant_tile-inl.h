// The tile of the product with a quantised b: some rows of a times some panels of b, over all of K.
// Compiled once per instruction set (see simd.h); what is summed, and in which order, says
// matmul_quant.cc. Knows no threads and no loops over tiles.

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
#include <cstring>

#include "kernels/cpu/matmul_kernel-inl.h"
#include "kernels/cpu/matmul_quant.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

using I32 = hn::ScalableTag<std::int32_t>;
using VI = hn::Vec<I32>;
using D16 = hn::Repartition<std::int16_t, I32>;
using V16 = hn::Vec<D16>;

/// Products of neighbours, added: of 16 bits; and of bytes, b unsigned.
HWY_INLINE VI add_products(V16 a, V16 b) {
#if HWY_TARGET == HWY_AVX3
  return VI{_mm512_madd_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VI{_mm256_madd_epi16(a.raw, b.raw)};
#else
  return VI{_mm_madd_epi16(a.raw, b.raw)};
#endif
}
HWY_INLINE V16 add_byte_products(VI b, VI a) {
#if HWY_TARGET == HWY_AVX3
  return V16{_mm512_maddubs_epi16(b.raw, a.raw)};
#elif HWY_TARGET == HWY_AVX2
  return V16{_mm256_maddubs_epi16(b.raw, a.raw)};
#else
  return V16{_mm_maddubs_epi16(b.raw, a.raw)};
#endif
}

// sum += b * a, four bytes a lane: b unsigned, `a` the four signed bytes that all lanes share.

/// With VNNI by one instruction, for which Highway has no word; else even and odd bytes are widened
/// to 16 bits and multiplied apart.
// SAFETY: the machine has VNNI (vnni_available()) where the template says so.
template <bool Vnni>
HWY_INLINE VI dot(VI sum, VI b, VI a) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (Vnni) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "v"(a.raw));
    return sum;
  }
#endif
  const D16 d16;
  const hn::Repartition<std::uint16_t, I32> du16;
  const auto b16 = hn::BitCast(du16, b);
  const V16 a_even = hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(d16, a)));
  const V16 a_odd = hn::ShiftRight<8>(hn::BitCast(d16, a));
  const V16 b_even = hn::BitCast(d16, hn::And(b16, hn::Set(du16, 0x00FF)));
  const V16 b_odd = hn::BitCast(d16, hn::ShiftRight<8>(b16));
  return hn::Add(sum, hn::Add(add_products(a_even, b_even), add_products(a_odd, b_odd)));
}

/// With b of 4 bits: two products are 2 * 15 * 127 at most, so that the eight pairs that meet in a
/// block of 32 fit into 16 bits.
template <bool Vnni>
HWY_INLINE V16 dot(V16 sum, VI b, VI a) {
  return hn::Add(sum, add_byte_products(b, a));
}

/// Sums that the registers hold twice, beside b and a: one block's, and all blocks' of 4 bits or
/// those of a block of b of 8, where the sum of all may wait in memory. And the widest tile, for
/// one row.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kQuantSums = 12, kQuantPanels = 4;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kQuantSums = 4, kQuantPanels = 2;
#else
inline constexpr int kQuantSums = 4, kQuantPanels = 1;
#endif
inline constexpr int kQuantRows = kQuantSums / kPanelVectors;

/// How far ahead b is asked for: the hardware does not foresee that far. Measured on Zen 5 with b
/// beyond its caches, in 4 bits: one row takes 0.85 of the time without, four rows 0.6; in 8 bits
/// one row takes as long, four 0.85. 2 to 4 KiB are much alike.
inline constexpr std::int64_t kPrefetchBytes = 3072;

struct QuantTile {
  QuantRows a;
  const std::uint8_t* b;      ///< The first panel.
  std::int64_t panel_stride;  ///< Bytes.
  std::int64_t row_blocks;    ///< Blocks of 32 in a block of b.
  float* c;
  std::int64_t c_row;
  std::int64_t columns;
};
using QuantFunction = void (*)(const QuantTile&);

/// The four bytes of `a` in every lane.
HWY_INLINE VI four_bytes(const std::int8_t* a) {
  std::int32_t word;
  std::memcpy(&word, a, sizeof(word));
  return hn::Set(I32(), word);
}

/// Adds four steps of b, or of 4 bits eight, to the sums: `a` and `b` at the first of them.
template <Quant Kind, bool Vnni, int Rows, int Panels, class Sum>
HWY_INLINE void add_group(const QuantTile& t, const std::int8_t* HWY_RESTRICT a,
                          const std::uint8_t* HWY_RESTRICT b,
                          Sum (&sum)[Rows][Panels * kPanelVectors]) {
  const I32 di;
  constexpr std::int64_t kBytes = lanes(I32()) * 4;
  VOLTA_UNROLL
  for (int p = 0; p < Panels; ++p) {
    VI low[kPanelVectors], high[kPanelVectors];
    VOLTA_UNROLL
    for (int u = 0; u < kPanelVectors; ++u) {
      const std::uint8_t* bytes = b + p * t.panel_stride + u * kBytes;
      // Once a cache line; SSE4, twice.
      if (u * kBytes % 64 == 0) hwy::Prefetch(bytes + kPrefetchBytes);
      low[u] = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(bytes));
#if HWY_TARGET == HWY_AVX3
      asm("" : "+v"(low[u].raw));  // Stays in its register; g++ 12 would load it for every row.
#endif
      if constexpr (Kind == Quant::kInt4) {
        const VI mask = hn::Set(di, 0x0F0F0F0F);
        high[u] = hn::And(hn::ShiftRight<4>(low[u]), mask);
        low[u] = hn::And(low[u], mask);
      }
    }
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      const std::int8_t* row = a + i * t.a.blocks * kRowBlock;
      VOLTA_UNROLL
      for (int u = 0; u < kPanelVectors; ++u) {
        Sum& to = sum[i][p * kPanelVectors + u];
        to = dot<Vnni>(to, low[u], four_bytes(row));
        if constexpr (Kind == Quant::kInt4) to = dot<Vnni>(to, high[u], four_bytes(row + 16));
      }
    }
  }
}

/// The integer sums of one block of 32: `a` and `b` at its first step.
template <Quant Kind, bool Vnni, int Rows, int Panels>
HWY_INLINE void sum_block(const QuantTile& t, const std::int8_t* HWY_RESTRICT a,
                          const std::uint8_t* HWY_RESTRICT b,
                          VI (&sum)[Rows][Panels * kPanelVectors]) {
  constexpr int kGroups = Kind == Quant::kInt4 ? 4 : 8;
  constexpr std::int64_t kGroupBytes = kPanelVectors * lanes(I32()) * 4;
  if constexpr (Vnni) {
    VOLTA_UNROLL
    for (std::int64_t g = 0; g < kGroups; ++g) {
      add_group<Kind, Vnni, Rows, Panels>(t, a + g * 4, b + g * kGroupBytes, sum);
    }
  } else if constexpr (Kind == Quant::kInt8) {
    VOLTA_NO_UNROLL
    for (std::int64_t g = 0; g < kGroups; ++g) {
      add_group<Kind, Vnni, Rows, Panels>(t, a + g * 4, b + g * kGroupBytes, sum);
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
      add_group<Kind, Vnni, Rows, Panels>(t, a + g * 4, b + g * kGroupBytes, pairs);
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

/// total += part * the columns' scales.
template <int Rows, int Panels>
HWY_INLINE void add_scaled(const QuantTile& t, const std::uint8_t* HWY_RESTRICT scales,
                           const V32 (&part)[Rows][Panels * kPanelVectors],
                           V32 (&total)[Rows][Panels * kPanelVectors]) {
  const F32 d;
  VOLTA_UNROLL
  for (int v = 0; v < Panels * kPanelVectors; ++v) {
    const auto* at = scales + v / kPanelVectors * t.panel_stride + v % kPanelVectors * lanes(d) * 2;
    const V32 scale = load(d, reinterpret_cast<const F16*>(at));
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) total[i][v] = hn::MulAdd(part[i][v], scale, total[i][v]);
  }
}

/// c[Rows, Panels] = a b.
// SAFETY: the caller owns Rows rows of a, Panels whole panels of b and the valid columns of c.
template <Quant Kind, bool Vnni, int Rows, int Panels>
void quant_tile(const QuantTile& t) {
  constexpr int kVectors = Panels * kPanelVectors;
  constexpr std::int64_t kBytes = Kind == Quant::kInt4 ? 16 : 32;  // Of 32 steps of a column.
  const F32 d;
  const std::int64_t width = lanes(d);
  const std::int64_t panel_width = kPanelVectors * width;
  const std::int64_t scales_at = t.row_blocks * kBytes * panel_width;
  const std::uint8_t* HWY_RESTRICT b = t.b;
  V32 total[Rows][kVectors], part[Rows][kVectors];
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) total[i][v] = hn::Zero(d);
  }
  for (std::int64_t block = 0; block < t.a.blocks; b += scales_at + panel_width * 2) {
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      VOLTA_UNROLL
      for (int v = 0; v < kVectors; ++v) part[i][v] = hn::Zero(d);
    }
    const std::int64_t end = block + t.row_blocks;
    for (const std::uint8_t* from = b; block < end; ++block, from += kBytes * panel_width) {
      VI sum[Rows][kVectors];
      VOLTA_UNROLL
      for (int i = 0; i < Rows; ++i) {
        const VI begin = hn::Set(I32(), t.a.correction[i * t.a.blocks + block]);
        VOLTA_UNROLL
        for (int v = 0; v < kVectors; ++v) sum[i][v] = begin;
      }
      sum_block<Kind, Vnni, Rows, Panels>(t, t.a.q + block * kRowBlock, from, sum);
      VOLTA_UNROLL
      for (int i = 0; i < Rows; ++i) {
        const V32 scale = hn::Set(d, t.a.scale[i * t.a.blocks + block]);
        VOLTA_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          const V32 exact = hn::ConvertTo(d, sum[i][v]);
          part[i][v] =
              Kind == Quant::kInt4 ? hn::Mul(exact, scale) : hn::MulAdd(exact, scale, part[i][v]);
        }
      }
      // Blocks of 4 bits are of 32: nothing to gain by keeping their parts.
      if (Kind == Quant::kInt4) add_scaled<Rows, Panels>(t, b + scales_at, part, total);
    }
    if (Kind == Quant::kInt8) add_scaled<Rows, Panels>(t, b + scales_at, part, total);
  }
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t n = std::clamp<std::int64_t>(t.columns - v * width, 0, width);
      float* c = t.c + i * t.c_row + v * width;
      if (n == width) {
        hn::StoreU(total[i][v], d, c);
      } else {
        store_n(d, total[i][v], c, n);
      }
    }
  }
}

/// The kernels by rows and panels; null where the registers do not suffice.
using QuantTable = std::array<std::array<QuantFunction, kQuantPanels + 1>, kQuantRows + 1>;

template <Quant Kind, bool Vnni, int Rows, int Panels>
constexpr void fill_quant(QuantTable& table) {
  if constexpr (Panels == 1 || std::int64_t{Rows} * Panels * kPanelVectors <= kQuantSums) {
    table[Rows][Panels] = &quant_tile<Kind, Vnni, Rows, Panels>;
  }
  if constexpr (Panels > 1) {
    fill_quant<Kind, Vnni, Rows, Panels / 2>(table);
  } else if constexpr (Rows > 1) {
    fill_quant<Kind, Vnni, Rows - 1, kQuantPanels>(table);
  }
}
template <Quant Kind, bool Vnni>
constexpr QuantTable make_quant_tiles() {
  QuantTable table{};
  fill_quant<Kind, Vnni, kQuantRows, kQuantPanels>(table);
  return table;
}

constexpr QuantTable kInt8Tiles = make_quant_tiles<Quant::kInt8, false>();
constexpr QuantTable kInt4Tiles = make_quant_tiles<Quant::kInt4, false>();
#if HWY_TARGET == HWY_AVX3
constexpr QuantTable kInt8VnniTiles = make_quant_tiles<Quant::kInt8, true>();
constexpr QuantTable kInt4VnniTiles = make_quant_tiles<Quant::kInt4, true>();
#endif

const QuantTable& quant_tiles(Quant quant, [[maybe_unused]] bool vnni) {
#if HWY_TARGET == HWY_AVX3
  if (vnni) return quant == Quant::kInt8 ? kInt8VnniTiles : kInt4VnniTiles;
#endif
  return quant == Quant::kInt8 ? kInt8Tiles : kInt4Tiles;
}

}  // namespace
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_MATMUL_QUANT_TILE_INL_H_
