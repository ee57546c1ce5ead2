// The integer sums of one sub-block of Q4_K, Q5_K or Q6_K: what unpacks its integers from a panel
// and multiplies them by those of a tile's rows (kernels/cpu/quant.h describes the layout of
// panels). The scales of sub-blocks are not used here. Compiled once per instruction set (see
// simd.h).

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_MATMUL_K_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_MATMUL_K_SUMS_INL_H_
#undef VOLTA_KERNELS_CPU_MATMUL_K_SUMS_INL_H_
#else
#define VOLTA_KERNELS_CPU_MATMUL_K_SUMS_INL_H_
#endif

#include <cstdint>

#include "kernels/cpu/matmul_quant_tile-inl.h"
#include "tensor/weight_format.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

/// Where the parts of a block of a panel begin, in bytes.
template <Quant Kind>
struct KPanel {
  static constexpr std::int64_t kWidth = kPanelVectors * lanes(F32());
  static constexpr std::int64_t kSteps = format_info(Kind).scale_steps;
  static constexpr int kSubs = kMaxBlock / static_cast<int>(kSteps);
  /// The integers of a sub-block.
  static constexpr std::int64_t kSubBytes = kSteps * format_info(Kind).bits / 8 * kWidth;
  static constexpr std::int64_t kScales = kSubs * kSubBytes;  ///< A row for each sub-block.
  static constexpr bool kHasMinimums = format_info(Kind).minimums;
  static constexpr std::int64_t kMinimums = kScales + kSubs * kWidth;
  /// The columns' f16 scales, then their f16 minimums.
  static constexpr std::int64_t kScale = kHasMinimums ? kMinimums + kSubs * kWidth : kMinimums;
  static constexpr std::int64_t kMinimum = kScale + 2 * kWidth;
};

/// Of every byte: the lowest two bits, the next two, the next two, and all six of these.
inline constexpr std::int32_t kSixBitMasks[] = {0x03030303, 0x0C0C0C0C, 0x30303030, 0x3F3F3F3F};

/// Adds 16 steps of Q6_K to the sums: four groups of four steps, stored as three words per column.
/// A byte of word i holds the 6 bits of group i; its upper two bits hold two bits of group 3.
// SAFETY: as k_tile(): the caller owns Rows rows of a and Panels whole panels of b, whose words are
// bytes that may be read as vectors of integers.
template <bool Vnni, int Rows, int Panels>
HWY_INLINE void sum_sixteen(const QuantTile& t, const RowPlaces<Rows>& a,
                            const std::uint8_t* HWY_RESTRICT b,
                            VI (&sum)[Rows][Panels * kPanelVectors]) {
  const I32 di;
  constexpr std::int64_t kBytes = lanes(I32()) * 4, kWord = kPanelVectors * kBytes;
  // Tall tiles have few registers to spare: they unpack one vector at a time, and their masks and
  // integers of a are operands in memory.
  constexpr bool kTall = Vnni && Rows > kMemoryBoundRows;
  constexpr int kVectors = kTall ? 1 : kPanelVectors;
  VOLTA_UNROLL
  for (int first = 0; first < Panels * kPanelVectors; first += kVectors) {
    const std::int32_t* masks = kSixBitMasks;
    if constexpr (kTall) asm volatile("" : "+r"(masks));  // Otherwise g++ loads them only once.
    VI q[4][kVectors];
    VOLTA_UNROLL
    for (int u = 0; u < kVectors; ++u) {
      const int v = first + u;
      const std::uint8_t* bytes =
          b + v / kPanelVectors * t.panel_stride + v % kPanelVectors * kBytes;
      VI word[3];
      VOLTA_UNROLL
      for (int i = 0; i < 3; ++i) {
        if (v % kPanelVectors * kBytes % 64 == 0) {
          hwy::Prefetch(bytes + i * kWord + kPrefetchBytes);
        }
        word[i] = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(bytes + i * kWord));
        q[i][u] = hn::And(word[i], hn::Set(di, masks[3]));
      }
      const VI top = hn::And(hn::ShiftRight<6>(word[0]), hn::Set(di, masks[0]));
      const VI middle = hn::OrAnd(top, hn::ShiftRight<4>(word[1]), hn::Set(di, masks[1]));
      q[3][u] = hn::OrAnd(middle, hn::ShiftRight<2>(word[2]), hn::Set(di, masks[2]));
    }
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      const std::int8_t* row = a.at(i);
      VOLTA_UNROLL
      for (int u = 0; u < kVectors; ++u) {
        VI& to = sum[i][first + u];
        if constexpr (Vnni) {
          VOLTA_UNROLL
          for (std::int64_t g = 0; g < 4; ++g) {
            to = kTall ? dot_four_bytes<Vnni>(to, q[g][u], row + 4 * g)
                       : dot<Vnni>(to, q[g][u], four_bytes(row + 4 * g));
          }
        } else {
          // Four products are 4 * 63 * 127 at most, so that two groups fit into 16 bits.
          const D16 d16;
          const V16 zero = hn::Zero(d16), one = hn::Set(d16, 1);
          V16 pairs = dot<Vnni>(zero, q[0][u], four_bytes(row));
          pairs = dot<Vnni>(pairs, q[1][u], four_bytes(row + 4));
          to = hn::Add(to, add_products(pairs, one));
          pairs = dot<Vnni>(zero, q[2][u], four_bytes(row + 8));
          pairs = dot<Vnni>(pairs, q[3][u], four_bytes(row + 12));
          to = hn::Add(to, add_products(pairs, one));
        }
      }
    }
  }
}

/// Adds 32 steps of Q5_K to the sums. Words 0 to 3 of a column are as with 4 bits; word 4 has the
/// fifth bits of all groups of four steps, bit g of its bytes those of group g.
template <bool Vnni, int Rows, int Panels>
HWY_INLINE void sum_five_bits(const QuantTile& t, const RowPlaces<Rows>& a,
                              const std::uint8_t* HWY_RESTRICT b,
                              VI (&sum)[Rows][Panels * kPanelVectors]) {
  const I32 di;
  const D16 d16;
  constexpr std::int64_t kBytes = lanes(I32()) * 4, kWord = kPanelVectors * kBytes;
  const VI low_bits = hn::Set(di, 0x0F0F0F0F), fifth_bit = hn::Set(di, 0x10101010);
  VOLTA_UNROLL
  for (int p = 0; p < Panels; ++p) {
    const auto load_word = [&](int word, int u) HWY_ATTR {
      const std::uint8_t* bytes = b + p * t.panel_stride + word * kWord + u * kBytes;
      if (u * kBytes % 64 == 0) hwy::Prefetch(bytes + kPrefetchBytes);
      return hn::LoadU(di, reinterpret_cast<const std::int32_t*>(bytes));
    };
    // In word w, bit 4 of their bytes is the fifth bit of the low and of the high halves.
    VI low_fifth[kPanelVectors], high_fifth[kPanelVectors];
    V16 pairs[Rows][kPanelVectors];
    VOLTA_UNROLL
    for (int u = 0; u < kPanelVectors; ++u) {
      high_fifth[u] = load_word(4, u);
      low_fifth[u] = hn::ShiftLeft<4>(high_fifth[u]);
    }
    VOLTA_UNROLL
    for (int word = 0; word < 4; ++word) {
      VI low[kPanelVectors], high[kPanelVectors];
      VOLTA_UNROLL
      for (int u = 0; u < kPanelVectors; ++u) {
        const VI both = load_word(word, u);
        low[u] = hn::OrAnd(hn::And(both, low_bits), low_fifth[u], fifth_bit);
        high[u] = hn::OrAnd(hn::And(hn::ShiftRight<4>(both), low_bits), high_fifth[u], fifth_bit);
        low_fifth[u] = hn::ShiftRight<1>(low_fifth[u]);
        high_fifth[u] = hn::ShiftRight<1>(high_fifth[u]);
      }
      VOLTA_UNROLL
      for (int i = 0; i < Rows; ++i) {
        const std::int8_t* row = a.at(i) + 4 * word;
        VOLTA_UNROLL
        for (int u = 0; u < kPanelVectors; ++u) {
          VI& to = sum[i][p * kPanelVectors + u];
          if constexpr (Vnni) {
            to = dot<Vnni>(to, low[u], four_bytes(row));
            to = dot<Vnni>(to, high[u], four_bytes(row + 16));
          } else {
            // Eight products are 8 * 31 * 127 at most, so that four groups fit into 16 bits.
            if (word % 2 == 0) pairs[i][u] = hn::Zero(d16);
            pairs[i][u] = dot<Vnni>(pairs[i][u], low[u], four_bytes(row));
            pairs[i][u] = dot<Vnni>(pairs[i][u], high[u], four_bytes(row + 16));
            if (word % 2 == 1) to = hn::Add(to, add_products(pairs[i][u], hn::Set(d16, 1)));
          }
        }
      }
    }
  }
}

/// sum += the products of sub-block `sub` of the block of b that begins at `b`. The integers of its
/// rows of a begin at `q`.
template <Quant Kind, bool Vnni, int Rows, int Panels>
HWY_INLINE void sum_sub_block(const QuantTile& t, const RowPlaces<Rows>& q,
                              const std::uint8_t* HWY_RESTRICT b, std::int64_t sub,
                              Sums<Rows, Panels * kPanelVectors>& sum) {
  const std::uint8_t* const integers = b + sub * KPanel<Kind>::kSubBytes;
  if constexpr (Kind == Quant::kQ6K) {
    sum_sixteen<Vnni, Rows, Panels>(t, q, integers, sum);
  } else if constexpr (Kind == Quant::kQ5K) {
    sum_five_bits<Vnni, Rows, Panels>(t, q, integers, sum);
  } else {
    QuantAhead none{b, 0};
    sum_block<Quant::kInt4, Vnni, Rows, Panels>(t, q, integers, none, sum);
  }
}

}  // namespace
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_MATMUL_K_SUMS_INL_H_
