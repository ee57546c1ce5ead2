// The factors of dropout: the same Philox numbers as base/rng.h, a vector of blocks at a time. The
// backward pass computes them again, so that they are not stored. Shared by Dropout and the
// attention ops.

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

using Wide = hn::RepartitionToWide<U32>;

/// One of Philox's four words in kCount vectors. Lanes have 64 bits, of which only the lower half
/// counts. The upper half may hold anything, because products are of lower halves. So taking the
/// lower half of a product needs no instruction.
template <int kCount>
struct Word {
  hn::Vec<Wide> v[kCount];

  HWY_INLINE explicit Word(std::uint32_t value) {
    for (auto& vector : v) vector = hn::Set(Wide(), value);
  }
};

// Philox4x32-10 (Salmon et al. 2011) on several vectors in turn, because the steps of one vector
// wait for each other.
template <int kCount>
HWY_INLINE void philox(std::uint64_t seed, Word<kCount>& x, Word<kCount>& y, Word<kCount>& z,
                       Word<kCount>& w) {
  const U32 d;
  const Wide wide;
  const auto product = [&](hn::Vec<Wide> a, std::uint32_t factor)
                           HWY_ATTR { return hn::MulEven(hn::BitCast(d, a), hn::Set(d, factor)); };
  auto key_low = static_cast<std::uint32_t>(seed);
  auto key_high = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kCount; ++i) {
      const auto a = product(x.v[i], 0xD2511F53u), b = product(z.v[i], 0xCD9E8D57u);
      x.v[i] = hn::Xor3(hn::ShiftRight<32>(b), y.v[i], hn::Set(wide, key_low));
      z.v[i] = hn::Xor3(hn::ShiftRight<32>(a), w.v[i], hn::Set(wide, key_high));
      y.v[i] = b;
      w.v[i] = a;
    }
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
}

// Computes the factors of kGroups times as many blocks as a vector has lanes, beginning with
// `block`.
template <int kGroups>
HWY_INLINE void block_factors(const DropoutRule& rule, std::uint64_t block, float* to) {
  const U32 d;
  const F32 df;
  const Wide wide;
  const hn::RebindToSigned<U32> di;
  Word<2 * kGroups> x(0), y(0), z(rule.stream), w(rule.step);
  for (int g = 0; g < kGroups; ++g, block += hn::MaxLanes(d)) {
    const VU32 first = hn::Set(d, static_cast<std::uint32_t>(block));
    const VU32 low = hn::Add(first, hn::Iota(d, 0));
    const VU32 carry = hn::IfThenElseZero(hn::Lt(low, first), hn::Set(d, 1));
    const VU32 high = hn::Add(hn::Set(d, static_cast<std::uint32_t>(block >> 32)), carry);
    x.v[2 * g] = hn::BitCast(wide, low);  // Blocks in even lanes, then those in odd ones.
    x.v[2 * g + 1] = hn::ShiftRight<32>(hn::BitCast(wide, low));
    y.v[2 * g] = hn::BitCast(wide, high);
    y.v[2 * g + 1] = hn::ShiftRight<32>(hn::BitCast(wide, high));
  }
  philox(rule.seed, x, y, z, w);
  const V32 scale = hn::Set(df, rule.kept_scale);
  const auto dropped = hn::Set(di, static_cast<std::int32_t>(rule.threshold) - 1);
  for (int g = 0; g < kGroups; ++g) {
    const auto factor = [&](const Word<2 * kGroups>& word) HWY_ATTR {
      const auto odd = hn::ShiftLeft<32>(word.v[2 * g + 1]);
      const VU32 bits = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, word.v[2 * g]));
      const auto uniform = hn::BitCast(di, hn::ShiftRight<8>(bits));
      return hn::IfThenElseZero(hn::RebindMask(df, hn::Gt(uniform, dropped)), scale);
    };
    hn::StoreInterleaved4(factor(x), factor(y), factor(z), factor(w), df,
                          to + std::int64_t{4} * g * lanes(d));
  }
}

/// Floats that dropout_factors needs in addition to `count`.
inline constexpr std::int64_t kDropoutSlack = 8 * static_cast<std::int64_t>(hn::MaxLanes(F32()));

/// Computes kept_scale or 0 for elements element + i, i < count, and returns the address of the
/// first one. It is in `buffer`, but not always at its start, because Philox makes blocks of four,
/// and `element` need not begin one. Writes whole vectors: the buffer must hold count +
/// kDropoutSlack floats. kGroups 2 takes two groups of blocks at a time, which is faster if count
/// is large.
template <int kGroups = 1>
HWY_INLINE const float* dropout_factors(const DropoutRule& rule, std::uint64_t element,
                                        std::int64_t count, float* buffer) {
  const auto offset = static_cast<std::int64_t>(element % 4);
  const std::int64_t group = 4 * lanes(U32());
  const auto block_at = [&](std::int64_t i) {
    return (element + static_cast<std::uint64_t>(i)) / 4;
  };
  std::int64_t i = 0;
  if constexpr (kGroups == 2) {
    for (; i + group < offset + count; i += 2 * group) {
      block_factors<2>(rule, block_at(i), buffer + i);
    }
  }
  for (; i < offset + count; i += group) block_factors<1>(rule, block_at(i), buffer + i);
  return buffer + offset;
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_DROPOUT_INL_H_
