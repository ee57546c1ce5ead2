// Tiles of few rows with the bits of AMX, but multiply-adds of AVX-512. With few rows a product
// waits for b, and these tiles read it faster than tiles of AMX do: a token of a model in bf16
// takes 0.6 of the time on 4 threads and 0.8 on 16 (Sapphire Rapids). One row reads four panels of
// b side by side.
//
// As TDPBF16PS does (matmul_tiles_amx.cc), an element adds up the even and the odd steps of 16
// pairs in two chains of multiply-adds from zero, and adds their sum to c; subnormal numbers count
// as zero. No bit differs (tests/kernels/matmul_bits_test.cc).
#include <xmmintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_tiles_amx_few.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_kernel-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
namespace {

constexpr std::int64_t kPairs = kAmxSteps / 2;

/// Makes this thread read subnormal numbers as zero and write zero in their place, as AMX does.
class SubnormalsAreZero {
 public:
  SubnormalsAreZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kBoth); }
  SubnormalsAreZero(const SubnormalsAreZero&) = delete;
  SubnormalsAreZero& operator=(const SubnormalsAreZero&) = delete;
  ~SubnormalsAreZero() { _mm_setcsr(before_); }

 private:
  static constexpr unsigned kBoth = 0x8040;  // FTZ and DAZ of MXCSR.
  unsigned before_;
};

/// The two numbers of each pair of bf16, as f32.
struct EvenOdd {
  V32 even, odd;
};
HWY_INLINE EvenOdd widen_pairs(hn::VFromD<hn::RebindToUnsigned<F32>> pairs) {
  const hn::RebindToUnsigned<F32> d;
  return {hn::BitCast(F32(), hn::ShiftLeft<16>(pairs)),
          hn::BitCast(F32(), hn::And(pairs, hn::Set(d, 0xFFFF0000u)))};
}

/// Adds up to 16 pairs of steps to c. Fewer than 16 count as 16 with zeros behind them.
template <int Rows, int Vectors>
HWY_INLINE void add_pairs(const std::uint32_t* HWY_RESTRICT a, std::int64_t a_row,
                          const std::uint32_t* HWY_RESTRICT b, const Tile& t, std::int64_t pairs,
                          float* c, std::int64_t c_row) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const std::int64_t width = lanes(d);
  V32 even[Rows][Vectors], odd[Rows][Vectors];
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < Vectors; ++v) even[i][v] = odd[i][v] = hn::Zero(d);
  }
  VOLTA_NO_UNROLL
  for (std::int64_t pair = 0; pair < pairs; ++pair, b += t.b_step) {
    EvenOdd x[Rows];
    VOLTA_UNROLL
    for (int i = 0; i < Rows; ++i) {
      std::uint32_t one;
      std::memcpy(&one, a + i * a_row + pair, sizeof(one));
      x[i] = widen_pairs(hn::Set(du, one));
    }
    VOLTA_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      const auto* from = b + v / kPanelVectors * t.panel_stride + v % kPanelVectors * width;
      const EvenOdd column = widen_pairs(hn::LoadU(du, from));
      VOLTA_UNROLL
      for (int i = 0; i < Rows; ++i) {
        even[i][v] = hn::MulAdd(x[i].even, column.even, even[i][v]);
        odd[i][v] = hn::MulAdd(x[i].odd, column.odd, odd[i][v]);
      }
    }
  }
  VOLTA_UNROLL
  for (int i = 0; i < Rows; ++i) {
    VOLTA_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      if (pairs < kPairs) {  // The sum of -0 and a product of zeros is 0.
        even[i][v] = hn::Add(even[i][v], hn::Zero(d));
        odd[i][v] = hn::Add(odd[i][v], hn::Zero(d));
      }
      float* at = c + i * c_row + v * width;
      hn::StoreU(hn::Add(hn::LoadU(d, at), hn::Add(even[i][v], odd[i][v])), d, at);
    }
  }
}

template <int Rows, int Vectors>
HWY_NOINLINE void add_all_pairs(const Tile& t, float* c, std::int64_t c_row) {
  const auto* a = static_cast<const std::uint32_t*>(t.a);
  const auto* b = static_cast<const std::uint32_t*>(t.b);
  std::int64_t pair = 0;
  for (; pair + kPairs <= t.k; pair += kPairs) {
    add_pairs<Rows, Vectors>(a + pair, t.a_row, b + pair * t.b_step, t, kPairs, c, c_row);
  }
  if (pair < t.k) {
    add_pairs<Rows, Vectors>(a + pair, t.a_row, b + pair * t.b_step, t, t.k - pair, c, c_row);
  }
}

// SAFETY: the caller owns Rows rows of a, `k` pairs of steps of Vectors whole vectors of b, and the
// valid columns of Rows rows of c.
template <int Rows, int Vectors>
void few_rows_tile(const Tile& t) {
  constexpr std::int64_t kColumns = Vectors * 16;
  alignas(64) float whole[Rows][kColumns];
  const bool fits = t.columns >= kColumns;
  float* const c = fits ? t.c : whole[0];
  const std::int64_t c_row = fits ? t.c_row : kColumns;
  const std::int64_t columns = std::min(t.columns, kColumns);
  for (std::int64_t i = 0; i < Rows; ++i) {
    if (!t.accumulate || !fits) std::fill_n(c + i * c_row, kColumns, 0.0f);
    if (t.accumulate && !fits) std::copy_n(t.c + i * t.c_row, columns, c + i * c_row);
  }
  {
    const SubnormalsAreZero mode;
    add_all_pairs<Rows, Vectors>(t, c, c_row);
  }
  if (fits) return;
  for (std::int64_t i = 0; i < Rows; ++i) {
    std::copy_n(c + i * c_row, columns, t.c + i * t.c_row);
  }
}

template <int Rows>
constexpr void fill_few_rows(TileTable& table) {
  table[Rows] = {&few_rows_tile<Rows, 1>, &few_rows_tile<Rows, 2>, &few_rows_tile<Rows, 4>};
  if constexpr (Rows > 1) fill_few_rows<Rows - 1>(table);
}

}  // namespace

const TileTable& amx_few_rows_table() {
  static constexpr TileTable table = [] {
    TileTable filled{};
    fill_few_rows<kFewAmxRows>(filled);
    return filled;
  }();
  return table;
}
#else
const TileTable& amx_few_rows_table() {
  static constexpr TileTable table{};
  return table;
}
#endif

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

const TileTable& amx_few_rows_tiles() {
  return VOLTA_SIMD_CALL(Simd::kAvx512Bf16, amx_few_rows_table);
}

}  // namespace volta::cpu
#endif
