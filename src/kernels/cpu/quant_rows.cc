// Rows of activations to int8 (quant_rows.h). A block along K, as long as the weight's or longer,
// has one scale: its largest magnitude / 127. A few channels of a trained model's activations are
// tens of times larger than the others and would take all others' digits. So no block's scale
// covers more than three times what the quietest 32 of its elements need; where 32 elements reach
// beyond, they are cut off, and what the cut and the rounding left of them is rounded once more,
// with a scale of its own: the rest. An element's error is at most three times the one of blocks
// of 32, and on such rows a fraction of it; rows without such channels have no rests.
//
// A row's integers depend on its elements and its length alone.
#include "kernels/cpu/quant_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cpu/element.h"
#include "kernels/cpu/matmul_plan.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quant_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/simd.h"

#ifndef VOLTA_KERNELS_CPU_QUANT_ROWS_TYPES_
#define VOLTA_KERNELS_CPU_QUANT_ROWS_TYPES_
namespace volta::cpu {

/// What rounding a row must know of b.
struct RowRounding {
  std::int64_t k;
  std::int64_t b_block;
  std::int32_t b_offset;  ///< What b's bytes hold beside q.
};

}  // namespace volta::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

using I32 = hn::ScalableTag<std::int32_t>;
using VI = hn::Vec<I32>;

/// Groups of 32 elements are looked at in fours.
inline constexpr std::int64_t kFour = 4;
/// Below it 127 / x is near infinity; it counts as zero.
inline constexpr float kTiny = 0x1p-100f;

/// The largest lanes of four vectors, to four integers.
HWY_INLINE void store_largest(VI v0, VI v1, VI v2, VI v3, float* to) {
  const I32 d;
  const hn::Repartition<std::int64_t, I32> d64;
  const auto both = [&](VI a, VI b) HWY_ATTR {
    const VI largest = hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
    return hn::BitCast(d64, largest);
  };
  const auto low = both(v0, v1), high = both(v2, v3);
  // Every 128 bits hold a result of each of the four.
  VI x = hn::Max(hn::BitCast(d, hn::InterleaveLower(d64, low, high)),
                 hn::BitCast(d, hn::InterleaveUpper(d64, low, high)));
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  x = hn::Max(x, hn::SwapAdjacentBlocks(x));
#endif
#if HWY_TARGET == HWY_AVX3
  x = hn::Max(x, hn::ReverseBlocks(d, x));
#endif
  alignas(64) std::int32_t lane[lanes(I32())];
  hn::Store(x, d, lane);
  std::memcpy(to, lane, kFour * sizeof(float));
}

/// A row's elements by 32: those of the row, then a copy of what is left, filled up with zeros.
template <typename T>
struct RowElements {
  const T* x;
  std::int64_t whole;  ///< Groups of 32 that lie in the row.
  alignas(64) std::array<float, kRestBlock> last;

  RowElements(const T* row, std::int64_t k) : x(row), whole(k / kRestBlock), last{} {
    for (std::int64_t i = whole * kRestBlock; i < k; ++i) {
      last[static_cast<std::size_t>(i % kRestBlock)] = to_f32(row[i]);
    }
  }
  /// fn(pointer) with group i, of T or float; `zeros` where there is none of it.
  template <class Fn, class Result>
  HWY_INLINE Result group(std::int64_t i, const Fn& fn, Result zeros) const {
    return i < whole ? fn(x + i * kRestBlock) : i == whole ? fn(last.data()) : zeros;
  }
};

/// The largest magnitudes of 32 elements. They are compared as integers: numbers that are not
/// finite have the largest bits.
template <typename T>
HWY_INLINE VI largest(const T* HWY_RESTRICT x) {
  const F32 d;
  const I32 di;
  VI top = hn::Zero(di);
  for (std::int64_t i = 0; i < kRestBlock; i += lanes(d)) {
    top = hn::Max(top, hn::BitCast(di, hn::Abs(load(d, x + i))));
  }
  return top;
}

/// The largest magnitude of each of a row's `groups` groups.
template <typename T>
HWY_INLINE void find_tops(const RowElements<T>& row, std::int64_t groups, float* tops) {
  std::int64_t i = 0;
  for (; i + kFour <= row.whole; i += kFour) {
    const T* x = row.x + i * kRestBlock;
    store_largest(largest(x), largest(x + kRestBlock), largest(x + 2 * kRestBlock),
                  largest(x + 3 * kRestBlock), tops + i);
  }
  const VI zero = hn::Zero(I32());
  for (; i < groups; ++i) {
    float top[kFour];
    const VI v = row.group(i, [](const auto* x) HWY_ATTR { return largest(x); }, zero);
    store_largest(v, zero, zero, zero, top);
    tops[i] = top[0];
  }
}

/// What a block's integers reach to, and which of its `groups` groups have a rest. NaN where
/// something is not finite.
struct BlockLimit {
  float limit;
  std::uint8_t rests;
};
HWY_INLINE BlockLimit block_limit(const float* tops, std::int64_t groups) {
  float top = 0, quietest = std::numeric_limits<float>::infinity(), zeros = 0;
  for (std::int64_t i = 0; i < groups; ++i) {
    zeros += tops[i] * 0.0f;
    top = std::max(top, tops[i]);
    quietest = std::min(quietest, tops[i] > kTiny ? tops[i] : quietest);
  }
  if (!(zeros == 0.0f)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  const float limit = std::min(top, 3.0f * quietest);
  unsigned rests = 0;
  if (top > limit) {
    for (std::int64_t i = 0; i < groups; ++i) rests |= (tops[i] > limit ? 1u : 0u) << i;
  }
  return {limit, static_cast<std::uint8_t>(rests)};
}

/// 32 elements times `inverse` as integers, none beyond 127; their sum's lanes.
template <typename T>
HWY_INLINE VI round_group(const T* HWY_RESTRICT x, V32 inverse, std::int8_t* HWY_RESTRICT q) {
  const F32 d;
  const hn::Rebind<std::int8_t, F32> d8;
  const V32 most = hn::Set(d, 127.0f), least = hn::Set(d, -127.0f);
  VI sum = hn::Zero(I32());
  for (std::int64_t i = 0; i < kRestBlock; i += lanes(d)) {
    const V32 v = hn::Mul(load(d, x + i), inverse);
    const VI rounded = hn::NearestInt(hn::Min(hn::Max(v, least), most));
    sum = hn::Add(sum, rounded);
    hn::StoreU(hn::DemoteTo(d8, rounded), d8, q + i);
  }
  return sum;
}

HWY_INLINE V32 inverse_of(float limit) {
  return hn::Set(F32(), limit > kTiny ? 127.0f / limit : 0.0f);
}

/// The rest of 32 elements: of what `whole` of them leaves.
template <typename T>
void round_rest(const T* HWY_RESTRICT x, const std::int8_t* HWY_RESTRICT whole, float scale,
                std::int32_t b_offset, std::int64_t group, const IntegerRows& to) {
  const F32 d;
  const I32 di;
  const hn::Rebind<std::int8_t, F32> d8;
  alignas(64) float rest[kRestBlock];
  V32 top = hn::Zero(d);
  for (std::int64_t i = 0; i < kRestBlock; i += lanes(d)) {
    const V32 q = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, whole + i)));
    const V32 left = hn::NegMulAdd(q, hn::Set(d, scale), load(d, x + i));
    top = hn::Max(top, hn::Abs(left));
    hn::Store(left, d, rest + i);
  }
  const float limit = hn::GetLane(hn::MaxOfLanes(d, top));
  const VI sum = round_group(rest, inverse_of(limit), to.q + group * kRestBlock);
  to.offset[group] = -b_offset * hn::GetLane(hn::SumOfLanes(di, sum));
  to.scale[group] = limit / 127.0f;
}

/// Rounds a block of a row to `limit`, and what the block's groups with a rest leave of that.
template <typename T>
HWY_INLINE void round_block(const RowElements<T>& row, const RowRounding& r, float limit,
                            std::int64_t block, const QuantRows& to) {
  const I32 di;
  const float scale = limit / 127.0f;
  to.whole.scale[block] = scale;
  const V32 inverse = inverse_of(limit);
  const std::int64_t groups = to.block / kRestBlock, first = block * groups;
  std::int8_t* q = to.whole.q + block * to.block;
  std::int32_t* offset = to.whole.offset + block * (to.block / r.b_block);
  for (std::int64_t i = 0; i < groups; ++offset) {
    VI sum = hn::Zero(di);
    for (const std::int64_t end = i + r.b_block / kRestBlock; i < end; ++i) {
      const auto round = [&](const auto* x)
                             HWY_ATTR { return round_group(x, inverse, q + i * kRestBlock); };
      if (first + i > row.whole) std::memset(q + i * kRestBlock, 0, kRestBlock);
      sum = hn::Add(sum, row.group(first + i, round, hn::Zero(di)));
    }
    *offset = -r.b_offset * hn::GetLane(hn::SumOfLanes(di, sum));
  }
  for (unsigned rests = to.rests[block]; rests != 0; rests &= rests - 1) {
    const std::int64_t i = std::countr_zero(rests);
    const auto round = [&](const auto* x) HWY_ATTR {
      round_rest(x, q + i * kRestBlock, scale, r.b_offset, first + i, to.rest);
      return 0;
    };
    row.group(first + i, round, 0);
  }
}

/// NaN and infinity are no numbers to round: they go into the scale, and so into the result.
void spoil_block(const RowRounding& r, std::int64_t block, const QuantRows& to) {
  const std::int64_t offsets = to.block / r.b_block;
  std::fill_n(to.whole.q + block * to.block, to.block, std::int8_t{0});
  std::fill_n(to.whole.offset + block * offsets, offsets, 0);
  to.whole.scale[block] = std::numeric_limits<float>::quiet_NaN();
}

/// A row in three passes, each of which has no need to wait for what it has just computed.
template <typename T>
void round_row(const T* x, const RowRounding& r, const QuantRows& to) {
  const RowElements<T> row(x, r.k);
  const std::int64_t groups = to.block / kRestBlock;
  float* tops = to.rest.scale;  // Until there are rests.
  find_tops(row, to.blocks * groups, tops);
  for (std::int64_t block = 0; block < to.blocks; ++block) {
    const BlockLimit limit = block_limit(tops + block * groups, groups);
    to.whole.scale[block] = limit.limit;
    to.rests[block] = limit.rests;
  }
  for (std::int64_t block = 0; block < to.blocks; ++block) {
    const float limit = to.whole.scale[block];
    if (limit == limit) {
      round_block(row, r, limit, block, to);
    } else {
      spoil_block(r, block, to);
    }
  }
}

}  // namespace

/// Rows [begin, end).
void round_rows(DType type, const void* x, const RowRounding& r, const QuantRows& to,
                std::int64_t begin, std::int64_t end) {
  visit_float(type, [&](auto element) HWY_ATTR {
    const auto* rows = static_cast<const decltype(element)*>(x);
    for (std::int64_t row = begin; row < end; ++row) round_row(rows + row * r.k, r, to.from(row));
  });
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

/// Sizes that follow from b's encoding and K.
struct RowsLayout {
  std::int64_t block, blocks, stride, b_blocks, parts;
};
RowsLayout rows_layout(const Encoding& b, std::int64_t k) {
  RowsLayout l{};
  l.block = quant_block(Quant::kInt8, k);
  if (b.quant == Quant::kInt8 || l.block % b.block != 0) l.block = b.block;
  l.blocks = ceil_div(k, l.block);
  // Rows a power of two apart would share a few sets of the cache.
  l.stride = ceil_div(l.blocks * l.block, 64) * 64 + 64;
  l.b_blocks = l.blocks * l.block / b.block;
  l.parts = l.blocks * l.block / kRestBlock;
  return l;
}

/// Takes arrays one after the other, each from a cache line on.
class Places {
 public:
  explicit Places(std::byte* memory) : memory_(memory) {}
  template <typename T>
  T* take(std::int64_t count) {
    const std::int64_t bytes = ceil_div(count * static_cast<std::int64_t>(sizeof(T)), 64) * 64;
    // SAFETY: the memory holds all that is taken, of which quant_rows_bytes() is the sum.
    T* place = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + taken_);
    taken_ += bytes;
    return place;
  }
  std::int64_t taken() const { return taken_; }

 private:
  std::byte* memory_;
  std::int64_t taken_ = 0;
};

QuantRows place(const RowsLayout& l, std::int64_t rows, Places& places) {
  const auto integers = [&](std::int64_t scales, std::int64_t offsets) {
    auto* q = places.take<std::int8_t>(rows * l.stride);
    auto* scale = places.take<float>(rows * scales);
    return IntegerRows{q,        scale,  places.take<std::int32_t>(rows * offsets),
                       l.stride, scales, offsets};
  };
  const IntegerRows whole = integers(l.blocks, l.b_blocks);
  const IntegerRows rest = integers(l.parts, l.parts);
  return {whole, rest, places.take<std::uint8_t>(rows * l.blocks), l.blocks, l.block};
}

}  // namespace

std::int64_t quant_rows_bytes(const Encoding& b, std::int64_t rows, std::int64_t k) {
  Places places(nullptr);
  place(rows_layout(b, k), rows, places);
  return places.taken();
}

QuantRows place_quant_rows(const Encoding& b, std::int64_t rows, std::int64_t k,
                           std::byte* memory) {
  Places places(memory);
  return place(rows_layout(b, k), rows, places);
}

void quantize_rows(const Context& context, const Encoding& b, DType type, const void* x,
                   std::int64_t rows, std::int64_t k, const QuantRows& to) {
  const RowRounding rounding{k, b.block, b.quant == Quant::kInt4 ? 8 : 128};
  split_rows(context, rows, k, [&](std::int64_t begin, std::int64_t end) {
    VOLTA_SIMD_CALL(context.simd, round_rows, type, x, rounding, to, begin, end);
  });
}

}  // namespace volta::cpu
#endif
