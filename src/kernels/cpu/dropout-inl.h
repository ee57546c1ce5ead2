// The factors of dropout: the same Philox numbers as base/rng.h, a vector of blocks at a time, made
// again in the backward pass instead of stored. Shared by Dropout and the attention ops.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_DROPOUT_INL_H_
#undef VOLTA_KERNELS_CPU_DROPOUT_INL_H_
#else
#define VOLTA_KERNELS_CPU_DROPOUT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
using U32 = hn::ScalableTag<std::uint32_t>;
using VU32 = hn::Vec<U32>;

// The halves of the 64-bit products of all lanes with one factor.
HWY_INLINE void multiply_wide(VU32 a, std::uint32_t factor, VU32& high, VU32& low) {
  const U32 d;
  const hn::RepartitionToWide<U32> wide;
  const VU32 b = hn::Set(d, factor);
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), b);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}

/// Floats that dropout_factors needs beyond those asked for.
inline constexpr std::int64_t kDropoutSlack = 8 * static_cast<std::int64_t>(hn::MaxLanes(F32()));

/// kept_scale or 0 for elements element + i, i < count, from the address that is returned on: in
/// `buffer`, but not at its start, since the blocks of four that Philox makes need not begin at
/// `element`. Writes whole vectors: the buffer holds count + kDropoutSlack floats.
HWY_INLINE const float* dropout_factors(const DropoutRule& rule, std::uint64_t element,
                                        std::int64_t count, float* buffer) {
  const U32 d;
  const F32 df;
  const auto offset = static_cast<std::int64_t>(element % 4);
  std::uint64_t block = element / 4;
  for (std::int64_t i = 0; i < offset + count; i += 4 * lanes(d), block += hn::MaxLanes(d)) {
    const VU32 first = hn::Set(d, static_cast<std::uint32_t>(block));
    VU32 x = hn::Add(first, hn::Iota(d, 0));
    const VU32 carry = hn::IfThenElseZero(hn::Lt(x, first), hn::Set(d, 1));
    VU32 y = hn::Add(hn::Set(d, static_cast<std::uint32_t>(block >> 32)), carry);
    VU32 z = hn::Set(d, rule.stream);
    VU32 w = hn::Set(d, rule.step);
    auto key_low = static_cast<std::uint32_t>(rule.seed);
    auto key_high = static_cast<std::uint32_t>(rule.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      VU32 a_high, a_low, b_high, b_low;
      multiply_wide(x, 0xD2511F53u, a_high, a_low);
      multiply_wide(z, 0xCD9E8D57u, b_high, b_low);
      x = hn::Xor(hn::Xor(b_high, y), hn::Set(d, key_low));
      y = b_low;
      z = hn::Xor(hn::Xor(a_high, w), hn::Set(d, key_high));
      w = a_low;
      key_low += 0x9E3779B9u;
      key_high += 0xBB67AE85u;
    }
    const V32 kept = hn::Set(df, rule.kept_scale);
    const hn::RebindToSigned<U32> di;
    const auto dropped = hn::Set(di, static_cast<std::int32_t>(rule.threshold) - 1);
    const auto factor = [&](VU32 bits) HWY_ATTR {
      const auto uniform = hn::BitCast(di, hn::ShiftRight<8>(bits));
      return hn::IfThenElseZero(hn::RebindMask(df, hn::Gt(uniform, dropped)), kept);
    };
    hn::StoreInterleaved4(factor(x), factor(y), factor(z), factor(w), df, buffer + i);
  }
  return buffer + offset;
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_DROPOUT_INL_H_
