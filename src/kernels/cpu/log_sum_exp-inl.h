// log(sum(exp(x))) of rows, for CrossEntropy and Sample. Compiled once per instruction set (see
// simd.h). A row is read from memory once. The order of a row's sum depends only on its length and
// the instruction set. It knows no op.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_LOG_SUM_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_LOG_SUM_EXP_INL_H_
#undef VOLTA_KERNELS_CPU_LOG_SUM_EXP_INL_H_
#else
#define VOLTA_KERNELS_CPU_LOG_SUM_EXP_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

/// The distance of prefetches in floats: about 16 KiB, a third of the L1 cache.
inline constexpr std::int64_t kExpAhead = 4096;

// ---- long rows --------------------------------------------------------------------------------

/// The sum of e^(x - around) over a row that is read once. If an element is far larger than those
/// before it, `around` is raised to it and the sum so far is scaled down. An element that is only a
/// little larger does not change `around`: it adds up to 2^16.
struct RunningSum {
  V32 around, sum[4];

  // The lowest finite number, not -infinity, because many elements may be -infinity themselves.
  HWY_INLINE RunningSum() {
    around = hn::Set(F32(), std::numeric_limits<float>::lowest());
    for (V32& s : sum) s = hn::Zero(F32());
  }

  HWY_INLINE V32 exponent(V32 x) const {
    return hn::Mul(hn::Sub(x, around), hn::Set(F32(), 1.44269504088896341f));
  }

  HWY_INLINE void raise(V32 largest) {
    const F32 d;
    const V32 before = around;
    around = hn::MaxOfLanes(d, largest);
    for (V32& s : sum) s = hn::Mul(s, exp2(d, exponent(before)));
  }

  template <int kCount>
  HWY_INLINE void add(const V32 (&x)[kCount]) {
    const F32 d;
    V32 largest = x[0];
    for (int i = 1; i < kCount; ++i) largest = hn::Max(largest, x[i]);
    const auto far = hn::Gt(exponent(largest), hn::Set(d, 16.0f));
    if (HWY_UNLIKELY(!hn::AllFalse(d, far))) raise(largest);
    for (int i = 0; i < kCount; ++i) sum[i] = hn::Add(sum[i], exp2(d, exponent(x[i])));
  }
};

HWY_INLINE float log_sum_exp_row(const float* x, std::int64_t n, std::int64_t ahead) {
  const F32 d;
  const std::int64_t width = lanes(d);
  RunningSum row;
  std::int64_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width) {
    for (std::int64_t j = 0; j < 4 * width; j += 16) __builtin_prefetch(x + ahead + i + j);
    row.add<4>({load(d, x + i), load(d, x + i + width), load(d, x + i + 2 * width),
                load(d, x + i + 3 * width)});
  }
  for (; i + width <= n; i += width) row.add<1>({load(d, x + i)});
  if (i < n) {
    const auto inside = hn::FirstN(d, static_cast<std::size_t>(n - i));
    const V32 nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
    row.add<1>({hn::IfThenElse(inside, load_n(d, x + i, n - i), nothing)});
  }
  const V32 sum = hn::Add(hn::Add(row.sum[0], row.sum[1]), hn::Add(row.sum[2], row.sum[3]));
  return hn::GetLane(hn::Add(row.around, log(d, hn::SumOfLanes(d, sum))));
}

// ---- short rows -------------------------------------------------------------------------------

/// Lane i of the result is the fold of v[i]: first of pairs of neighbours, then of pairs of those,
/// ...
template <std::size_t kCount, class Fold>
HWY_INLINE V32 fold_each(const V32 (&v)[kCount], const Fold& fold) {
  const F32 d;
  if constexpr (kCount == 1) {
    return v[0];
  } else {
    V32 half[kCount / 2];
    for (std::size_t i = 0; i < kCount / 2; ++i) {
      const V32 a = v[2 * i], b = v[2 * i + 1];
      half[i] = fold(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
    }
    return fold_each(half, fold);
  }
}

/// The lse of `rows` rows of n elements; there are at most as many as a vector has lanes. Work that
/// is needed once per row is done for all of them together. Rows whose largest element is huge or
/// infinite are left to log_sum_exp_row().
HWY_INLINE void log_sum_exp_tile(const float* x, std::int64_t rows, std::int64_t n,
                                 std::int64_t ahead, float* lse) {
  const F32 d;
  constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));
  const std::int64_t whole = (n - 1) / kLanes * kLanes;
  const V32 nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto inside = hn::FirstN(d, static_cast<std::size_t>(n - whole));
  const auto last = [&](const float* row) HWY_ATTR {
    return hn::IfThenElse(inside, load_n(d, row + whole, n - whole), nothing);
  };

  V32 v[kLanes];
  const float* row = x;
  for (std::int64_t r = 0; r < kLanes; ++r, row += r < rows ? n : 0) {
    v[r] = last(row);
    for (std::int64_t i = 0; i < whole; i += kLanes) v[r] = hn::Max(v[r], load(d, row + i));
  }
  const V32 largest = fold_each(v, [](V32 a, V32 b) HWY_ATTR { return hn::Max(a, b); });
  const V32 log2e = hn::Set(d, 1.44269504088896341f), around = hn::Mul(largest, log2e);
  alignas(64) float each[kLanes];
  hn::Store(around, d, each);
  row = x;
  for (std::int64_t r = 0; r < kLanes; ++r, row += r < rows ? n : 0) {
    const V32 to = hn::Set(d, each[r]);
    v[r] = exp2(d, hn::MulSub(last(row), log2e, to));
    for (std::int64_t i = 0; i < whole; i += kLanes) {
      __builtin_prefetch(row + ahead + i);
      v[r] = hn::Add(v[r], exp2(d, hn::MulSub(load(d, row + i), log2e, to)));
    }
  }
  const V32 total = fold_each(v, [](V32 a, V32 b) HWY_ATTR { return hn::Add(a, b); });
  const V32 ln2 = hn::Set(d, 0.693147180559945309f);
  store_n(d, hn::MulAdd(around, ln2, log(d, total)), lse, rows);
  constexpr float kFar = 0x1p20f;  // x log2(e) - around is as inexact as `around` is.
  if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(hn::Abs(around), hn::Set(d, kFar))))) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (!(std::abs(each[r]) < kFar)) lse[r] = log_sum_exp_row(x + r * n, n, 0);
  }
}

// ---- rows -------------------------------------------------------------------------------------

/// Rows up to this length are computed several at once.
inline constexpr std::int64_t kShortRow = 128;

/// lse[r] = log(sum(exp(x[r * n + i]))) over i < n, for r < rows. The `behind` floats after these
/// rows will be read next. A row's result does not depend on the others: only its length decides
/// how it is summed.
inline HWY_NOINLINE void log_sum_exp(const float* x, std::int64_t rows, std::int64_t n,
                                     std::int64_t behind, float* lse) {
  const bool is_short = n <= kShortRow;
  const std::int64_t step = is_short ? lanes(F32()) : 1;
  for (std::int64_t r = 0; r < rows; r += step) {
    const std::int64_t count = std::min(rows - r, step);
    const float* const from = x + r * n;
    const std::int64_t ahead =
        std::min(kExpAhead, (rows - r - (is_short ? count : 0)) * n + behind);
    if (is_short) {
      log_sum_exp_tile(from, count, n, ahead, lse + r);
    } else {
      lse[r] = log_sum_exp_row(from, n, ahead);
    }
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_LOG_SUM_EXP_INL_H_
