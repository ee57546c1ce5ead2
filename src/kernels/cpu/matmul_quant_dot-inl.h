// Sums of products of bytes, four or eight at a time in every lane, with the instructions of each
// instruction set (see simd.h). Knows no tiles and no scales.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_MATMUL_QUANT_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_MATMUL_QUANT_DOT_INL_H_
#undef VOLTA_KERNELS_CPU_MATMUL_QUANT_DOT_INL_H_
#else
#define VOLTA_KERNELS_CPU_MATMUL_QUANT_DOT_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using I32 = hn::ScalableTag<std::int32_t>;
using VI = hn::Vec<I32>;
using D16 = hn::Repartition<std::int16_t, I32>;
using V16 = hn::Vec<D16>;

/// Multiply 16-bit numbers, or bytes with an unsigned b, and add the products of neighbours.
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

// sum += b * a, four bytes per lane: b is unsigned, and `a` has the same four signed bytes in all
// lanes.

/// With VNNI in one instruction, which Highway does not have. Otherwise even and odd bytes are
/// widened to 16 bits and multiplied separately.
// SAFETY: the machine has VNNI (has_vnni(context.simd)) where the template says so.
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

/// With b of 4 bits: two products are 2 * 15 * 127 at most, so that the sum of the eight pairs of a
/// block of 32 fits into 16 bits.
template <bool Vnni>
HWY_INLINE V16 dot(V16 sum, VI b, VI a) {
  return hn::Add(sum, add_byte_products(b, a));
}

/// The four bytes at `a`, copied to every lane.
HWY_INLINE VI four_bytes(const std::int8_t* a) {
  std::int32_t word;
  std::memcpy(&word, a, sizeof(word));
  return hn::Set(I32(), word);
}

/// dot(sum, b, four_bytes(a)). With VNNI the four bytes are an operand in memory, so that they
/// occupy no register.
template <bool Vnni>
HWY_INLINE VI dot_four_bytes(VI sum, VI b, const std::int8_t* a) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (Vnni) {
    struct FourBytes {
      std::int8_t bytes[4];
    };
    asm("vpdpbusd %2%{1to16%}, %1, %0"
        : "+v"(sum.raw)
        : "v"(b.raw), "m"(*reinterpret_cast<const FourBytes*>(a)));
    return sum;
  }
#endif
  return dot<Vnni>(sum, b, four_bytes(a));
}

/// sum += the products of both halves of each lane.
// SAFETY: as dot().
template <bool Vnni>
HWY_INLINE VI add_pair_products(VI sum, VI b, VI a) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (Vnni) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "v"(a.raw));
    return sum;
  }
#endif
  const D16 d16;
  return hn::Add(sum, add_products(hn::BitCast(d16, b), hn::BitCast(d16, a)));
}

}  // namespace
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_MATMUL_QUANT_DOT_INL_H_
