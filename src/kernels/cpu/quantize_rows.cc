// Rounds rows of activations to int8 (quant_rows.h). A block along K, as long as the weight's or
// longer, has one scale: its largest magnitude / 127. A few channels of a trained model's
// activations are tens of times larger than the others, and such a scale would leave too few digits
// to the others. So the scale of a block covers at most eight times what its quietest group of 32
// elements needs. If a group has larger values, they are cut off. What the cut and the rounding
// leave of that group is its rest, which is rounded again, with a scale of its own.
//
// On such rows an element's error is half of what it is with blocks of 32. On others it is 1.2
// (normal) to 1.5 times that (products of normals), and at most eight times. Groups with a rest are
// multiplied twice. With the limit of eight, fewer than one group in a hundred of normal, GELU's or
// SwiGLU's values has a rest. With three, one group in eight of SwiGLU's values would, and so would
// most groups of a tile, because its rows share this work.
//
// A row's integers depend only on its elements and its length.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/arithmetic.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/matmul_plan.h"
#include "kernels/cpu/quant_rows.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantize_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/simd.h"

#ifndef VOLTA_KERNELS_CPU_QUANTIZE_ROWS_TYPES_
#define VOLTA_KERNELS_CPU_QUANTIZE_ROWS_TYPES_
namespace volta::cpu {

/// What rounding a row needs to know about b.
struct RowRounding {
  std::int64_t k;
  std::int64_t whole;            ///< Blocks of a that are completely filled.
  std::int64_t b_block;          ///< Elements that share an offset.
  std::int64_t b_blocks;         ///< Offsets in one of a's blocks.
  std::int32_t b_offset;         ///< What b's bytes hold in addition to q.
  bool sub_blocks;               ///< Whether b_block is the size of sub-blocks, 16 or 32.
  std::int32_t lowest, highest;  ///< The bounds of b's integers, if it has sub-blocks.
};

}  // namespace volta::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

using I32 = hn::ScalableTag<std::int32_t>;
using VI = hn::Vec<I32>;

using I4 = hn::FixedTag<std::int32_t, 4>;
using F4 = hn::FixedTag<float, 4>;
using VI4 = hn::Vec<I4>;

/// Groups of 32 elements are examined four at a time.
inline constexpr std::int64_t kFour = 4;
/// A block's scale covers at most this many times what its quietest group needs.
inline constexpr float kLoudest = 8.0f;

/// Below this, 127 / x is near infinity; such values count as zero.
inline constexpr float kTiny = 0x1p-100f;

/// Combines all 128-bit parts of a vector with `combine`.
template <class Combine>
HWY_INLINE VI4 fold(VI x, [[maybe_unused]] const Combine& combine) {
#if HWY_TARGET == HWY_AVX3
  const auto half = combine(hn::LowerHalf(x), hn::UpperHalf(hn::Half<I32>(), x));
  return combine(hn::LowerHalf(half), hn::UpperHalf(I4(), half));
#elif HWY_TARGET == HWY_AVX2
  return combine(hn::LowerHalf(x), hn::UpperHalf(I4(), x));
#else
  return x;
#endif
}

/// The largest lane of each of four vectors.
HWY_INLINE VI4 largest_lanes(VI v0, VI v1, VI v2, VI v3) {
  const I32 d;
  const hn::Repartition<std::int64_t, I32> d64;
  const auto both = [&](VI a, VI b) HWY_ATTR {
    const VI largest = hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
    return hn::BitCast(d64, largest);
  };
  const auto low = both(v0, v1), high = both(v2, v3);
  // Every 128-bit part holds a result of each of the four vectors.
  const VI x = hn::Max(hn::BitCast(d, hn::InterleaveLower(d64, low, high)),
                       hn::BitCast(d, hn::InterleaveUpper(d64, low, high)));
  return fold(x, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); });
}

/// The sum of all lanes.
HWY_INLINE std::int32_t sum_lanes(VI v) {
  VI4 x = fold(v, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
  x = hn::Add(x, hn::Shuffle1032(x));
  return hn::GetLane(hn::Add(x, hn::Shuffle2301(x)));
}

/// The largest magnitudes of 32 elements, by lane. They are compared as integers, in which numbers
/// that are not finite are the largest.
template <typename T>
HWY_INLINE VI largest(const T* HWY_RESTRICT x) {
  const F32 d;
  const I32 di;
  VI top = hn::BitCast(di, hn::Abs(load(d, x)));
  for (std::int64_t i = lanes(d); i < kRowGroup; i += lanes(d)) {
    top = hn::Max(top, hn::BitCast(di, hn::Abs(load(d, x + i))));
  }
  return top;
}

/// The largest magnitude of each of the first four groups, or of all `groups` if there are fewer.
template <typename T>
HWY_INLINE VI4 largest_of_four(const T* HWY_RESTRICT x, std::int64_t groups) {
  const VI zero = hn::Zero(I32());
  if (groups >= kFour) {
    return largest_lanes(largest(x), largest(x + kRowGroup), largest(x + 2 * kRowGroup),
                         largest(x + 3 * kRowGroup));
  }
  return largest_lanes(largest(x), groups > 1 ? largest(x + kRowGroup) : zero,
                       groups > 2 ? largest(x + 2 * kRowGroup) : zero, zero);
}

/// The largest magnitude that a block's integers cover, and the groups that have a rest. The limit
/// is NaN if an element is not finite.
struct BlockLimit {
  float limit;
  std::uint8_t rests;
};
template <typename T>
HWY_INLINE BlockLimit block_limit(const T* HWY_RESTRICT x, std::int64_t groups) {
  const I4 d;
  const VI4 infinity = hn::Set(d, 0x7F800000);
  const VI4 tiny = hn::BitCast(d, hn::Set(F4(), kTiny));
  alignas(16) std::int32_t tops[2 * kFour];
  VI4 top = hn::Zero(d), quietest = infinity;
  for (std::int64_t i = 0; i < groups; i += kFour) {
    const VI4 v = largest_of_four(x + i * kRowGroup, groups - i);
    hn::Store(v, d, tops + i);
    top = hn::Max(top, v);
    quietest = hn::Min(quietest, hn::IfThenElse(hn::Gt(v, tiny), v, infinity));
  }
  top = hn::Max(top, hn::Shuffle2301(top));
  top = hn::Max(top, hn::Shuffle1032(top));
  quietest = hn::Min(quietest, hn::Shuffle2301(quietest));
  quietest = hn::Min(quietest, hn::Shuffle1032(quietest));
  const float loudest = hn::GetLane(hn::BitCast(F4(), top));
  if (!(loudest < std::numeric_limits<float>::infinity())) {
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  const float limit = std::min(loudest, kLoudest * hn::GetLane(hn::BitCast(F4(), quietest)));
  unsigned rests = 0;
  if (HWY_UNLIKELY(loudest > limit)) {
    const VI4 least = hn::Set(d, std::bit_cast<std::int32_t>(limit));
    for (std::int64_t i = 0; i < groups; i += kFour) {
      std::uint8_t bits[8] = {};  // Highway may write that many.
      hn::StoreMaskBits(d, hn::Gt(hn::Load(d, tops + i), least), bits);
      rests |= unsigned{bits[0]} << i;
    }
  }
  return {limit, static_cast<std::uint8_t>(rests)};
}

/// Rounds to the nearest integers, for values in their range.
HWY_INLINE VI nearest(V32 v) {
#if HWY_TARGET == HWY_AVX3
  return VI{_mm512_cvtps_epi32(v.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VI{_mm256_cvtps_epi32(v.raw)};
#else
  return VI{_mm_cvtps_epi32(v.raw)};
#endif
}

/// Integers of -128 to 127 as bytes.
HWY_INLINE hn::Vec<hn::Rebind<std::int8_t, F32>> to_bytes(VI v) {
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<hn::Rebind<std::int8_t, F32>>{_mm512_cvtepi32_epi8(v.raw)};
#else
  return hn::DemoteTo(hn::Rebind<std::int8_t, F32>(), v);
#endif
}

/// Rounds a vector of elements times `inverse` to integers. Cut: some may be beyond 127.
template <bool Cut, typename T>
HWY_INLINE VI round_vector(const T* HWY_RESTRICT x, V32 inverse, std::int8_t* HWY_RESTRICT q) {
  const F32 d;
  const hn::Rebind<std::int8_t, F32> d8;
  V32 v = hn::Mul(load(d, x), inverse);
  if constexpr (Cut) v = hn::Min(hn::Max(v, hn::Set(d, -127.0f)), hn::Set(d, 127.0f));
  const VI rounded = nearest(v);
  hn::StoreU(to_bytes(rounded), d8, q);
  return rounded;
}

/// Rounds 32 elements times `inverse` to integers, and returns their sums by lane.
template <bool Cut, typename T>
HWY_INLINE VI round_group(const T* HWY_RESTRICT x, V32 inverse, std::int8_t* HWY_RESTRICT q) {
  VI sum = hn::Zero(I32());
  for (std::int64_t i = 0; i < kRowGroup; i += lanes(F32())) {
    sum = hn::Add(sum, round_vector<Cut>(x + i, inverse, q + i));
  }
  return sum;
}

HWY_INLINE V32 inverse_of(float limit) {
  return hn::Set(F32(), limit > kTiny ? 127.0f / limit : 0.0f);
}

/// The offsets of 32 integers, one for each half.
HWY_INLINE void put_half_offsets(const std::int8_t* HWY_RESTRICT q, std::int32_t b_offset,
                                 std::int32_t* HWY_RESTRICT offset) {
  for (std::int64_t half = 0; half < 2; ++half) {
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < kRowGroup / 2; ++i) sum += q[half * (kRowGroup / 2) + i];
    offset[half] = -b_offset * sum;
  }
}

/// Rounds the rest of 32 elements: what is left after subtracting `whole`.
template <typename T>
HWY_NOINLINE void round_rest(const T* HWY_RESTRICT x, const std::int8_t* HWY_RESTRICT whole,
                             float scale, std::int32_t b_offset, std::int64_t group,
                             IntegerRows to) {
  const F32 d;
  const I32 di;
  const hn::Rebind<std::int8_t, F32> d8;
  alignas(64) float rest[kRowGroup];
  V32 top = hn::Zero(d);
  for (std::int64_t i = 0; i < kRowGroup; i += lanes(d)) {
    const V32 q = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, whole + i)));
    const V32 left = hn::NegMulAdd(q, hn::Set(d, scale), load(d, x + i));
    top = hn::Max(top, hn::Abs(left));
    hn::Store(left, d, rest + i);
  }
  const float limit = hn::GetLane(hn::MaxOfLanes(d, top));
  std::int8_t* q = to.q + group * kRowGroup;
  const VI sum = round_group<false>(rest, inverse_of(limit), q);
  to.scale[group] = limit / 127.0f;
  if (to.offsets == to.scales) {
    to.offset[group] = -b_offset * sum_lanes(sum);
  } else {
    put_half_offsets(q, b_offset, to.offset + 2 * group);
  }
}

/// Rounds a sub-block's elements times `inverse` to integers, and computes its offset. Returns
/// whether the sum of their products with integers of b may exceed 16 bits.
template <bool Cut, typename T>
HWY_INLINE bool round_sub_block(const T* HWY_RESTRICT x, const RowRounding& r, V32 inverse,
                                std::int8_t* HWY_RESTRICT q, std::int32_t* offset) {
  const VI zero = hn::Zero(I32());
  VI sums = zero;  // In the upper halves of its lanes those of the positive integers, below of all.
  for (std::int64_t i = 0; i < r.b_block; i += lanes(F32())) {
    const VI rounded = round_vector<Cut>(x + i, inverse, q + i);
    sums = hn::Add(sums, hn::Add(rounded, hn::ShiftLeft<16>(hn::Max(rounded, zero))));
  }
  const std::int32_t both = sum_lanes(sums);
  const std::int32_t sum = static_cast<std::int16_t>(both & 0xFFFF);
  const std::int32_t positive = (both - sum) >> 16, negative = positive - sum;
  *offset = -r.b_offset * sum;
  constexpr std::int32_t kMost = std::numeric_limits<std::int16_t>::max();
  return r.highest * positive - r.lowest * negative > kMost ||
         r.highest * negative - r.lowest * positive > kMost;
}

/// Rounds the elements of a row's block times `inverse` to integers, and computes the offsets.
template <bool Cut, typename T>
HWY_INLINE void round_groups(const T* HWY_RESTRICT x, const RowRounding& r, V32 inverse,
                             std::int64_t block, const QuantRows& to) {
  const std::int64_t begin = block * to.block;
  std::int32_t* HWY_RESTRICT offset = to.whole.offset + block * r.b_blocks;
  if (r.sub_blocks) {
    bool wide = false;
    for (std::int64_t i = 0; i < to.block; i += r.b_block, ++offset) {
      wide |= round_sub_block<Cut>(x + i, r, inverse, to.whole.q + to.at(begin + i), offset);
    }
    if (wide) *to.wide = 1;
    return;
  }
  for (std::int64_t i = 0; i < to.block; ++offset) {
    VI sum = hn::Zero(I32());
    for (const std::int64_t end = i + r.b_block; i < end; i += kRowGroup) {
      sum = hn::Add(sum, round_group<Cut>(x + i, inverse, to.whole.q + to.at(begin + i)));
    }
    *offset = -r.b_offset * sum_lanes(sum);
  }
}

/// Rounds a block of a row to its limit, and then the rests of the groups that have one.
template <typename T>
HWY_INLINE void round_block(const T* HWY_RESTRICT x, const RowRounding& r, std::int64_t block,
                            const QuantRows& to) {
  const float limit = to.whole.scale[block], scale = limit / 127.0f;
  to.whole.scale[block] = scale;
  unsigned rests = to.rests[block];
  if (rests == 0) {
    round_groups<false>(x, r, inverse_of(limit), block, to);
    return;
  }
  round_groups<true>(x, r, inverse_of(limit), block, to);
  for (; rests != 0; rests &= rests - 1) {
    const std::int64_t i = std::countr_zero(rests);
    const std::int64_t group = block * (to.block / kRowGroup) + i;
    round_rest(x + i * kRowGroup, to.whole.q + to.at(group * kRowGroup), scale, r.b_offset, group,
               to.rest);
  }
}

/// NaN and infinity cannot be rounded. They make the scale NaN, and so the result.
HWY_INLINE void spoil_block(const RowRounding& r, std::int64_t block, const QuantRows& to) {
  for (std::int64_t k = block * to.block; k < (block + 1) * to.block; k += kRowGroup) {
    std::fill_n(to.whole.q + to.at(k), kRowGroup, std::int8_t{0});
  }
  std::fill_n(to.whole.offset + block * r.b_blocks, r.b_blocks, 0);
  to.whole.scale[block] = std::numeric_limits<float>::quiet_NaN();
}

/// The blocks of a row; the last one is padded with zeros.
template <typename T>
struct RowBlocks {
  const T* x;
  std::int64_t block;
  std::int64_t whole;  ///< Blocks that are completely in the row.
  alignas(64) std::array<T, 256> last;

  RowBlocks(const T* row, const RowRounding& r, std::int64_t size)
      : x(row), block(size), whole(r.whole) {
    const std::int64_t begin = whole * size;
    if (begin == r.k) return;
    last.fill(T{});
    std::copy_n(row + begin, r.k - begin, last.data());
  }
  HWY_INLINE const T* at(std::int64_t i) const { return i < whole ? x + i * block : last.data(); }
};

/// Finds the limits of a row's blocks, and stores them in the place of the scales for now.
template <typename T>
HWY_INLINE void limit_row(const T* x, const RowRounding& r, const QuantRows& to) {
  const RowBlocks<T> row(x, r, to.block);
  for (std::int64_t block = 0; block < to.blocks; ++block) {
    const BlockLimit limit = block_limit(row.at(block), to.block / kRowGroup);
    to.whole.scale[block] = limit.limit;
    to.rests[block] = limit.rests;
  }
}

template <typename T>
HWY_INLINE void round_row(const T* x, const RowRounding& r, const QuantRows& to) {
  const RowBlocks<T> row(x, r, to.block);
  *to.wide = 0;
  for (std::int64_t block = 0; block < to.blocks; ++block) {
    if (std::isnan(to.whole.scale[block])) {
      spoil_block(r, block, to);
    } else {
      round_block(row.at(block), r, block, to);
    }
  }
}

/// Takes as many rows at a time as stay in L1, in two passes, so that neither pass waits for what
/// it has just computed.
template <typename T>
HWY_INLINE void round_rows_of(const T* x, const RowRounding r, const QuantRows to,
                              std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kElements = 4096;
  const std::int64_t some = std::max<std::int64_t>(1, kElements / std::max<std::int64_t>(1, r.k));
  for (std::int64_t first = begin; first < end; first += some) {
    const std::int64_t last = std::min(end, first + some);
    for (std::int64_t i = first; i < last; ++i) limit_row(x + i * r.k, r, to.from(i));
    for (std::int64_t i = first; i < last; ++i) round_row(x + i * r.k, r, to.from(i));
  }
}

/// The same, with the sizes of most weights as constants.
template <typename T>
void round_rows_of_128(const T* x, RowRounding r, QuantRows to, std::int64_t begin,
                       std::int64_t end) {
  if (to.block != 128 || r.b_block != 128 || r.whole != to.blocks) {
    round_rows_of(x, r, to, begin, end);
    return;
  }
  r.b_block = to.block = 128;
  r.b_blocks = 1;
  r.whole = to.blocks;
  r.k = to.blocks * 128;
  round_rows_of(x, r, to, begin, end);
}

}  // namespace

/// Rows [begin, end).
void round_rows(DType type, const void* x, const RowRounding& r, const QuantRows& to,
                std::int64_t begin, std::int64_t end) {
  visit_float(type, [&](auto element) HWY_ATTR {
    round_rows_of_128(static_cast<const decltype(element)*>(x), r, to, begin, end);
  });
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

void quantize_rows(const Context& context, const Encoding& b, DType type, const void* x,
                   std::int64_t rows, std::int64_t k, const QuantRows& to) {
  // If b has no offset, the negated sums themselves are kept, because minimums are multiplied by
  // them.
  const FormatInfo& format = format_info(b.quant);
  const std::int32_t offset = std::max(1, format.offset);
  const std::int64_t steps = offset_steps(b);
  const std::int32_t highest = (1 << format.bits) - 1 - format.offset;
  const RowRounding rounding{k,
                             k / to.block,
                             steps,
                             to.block / steps,
                             offset,
                             format.scale_steps != 0,
                             -format.offset,
                             highest};
  split_rows(context, rows, k, [&](std::int64_t begin, std::int64_t end) {
    VOLTA_SIMD_CALL(context.simd, round_rows, type, x, rounding, to, begin, end);
  });
}

}  // namespace volta::cpu
#endif
