// The vector code on blocks that attention's forward and backward passes share, compiled once per
// instruction set (see simd.h): small matrix products, copies of blocks into scratch, and the
// weights' masks and exponential. It must not know what the blocks mean.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_ATTENTION_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_ATTENTION_BLOCKS_INL_H_
#undef VOLTA_KERNELS_CPU_ATTENTION_BLOCKS_INL_H_
#else
#define VOLTA_KERNELS_CPU_ATTENTION_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/arithmetic.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace attention {

using namespace volta::cpu::attention;  // NOLINT(google-build-using-namespace): the plain half.

inline constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));
static_assert(kPad % kLanes == 0 && kKeyBlock % kLanes == 0);

// ---- prefetches ------------------------------------------------------------------------------

/// Bytes that will be read next, prefetched a few at a time during a computation. If all were
/// prefetched at once, the processor would drop many (decoding from memory: a fifth to a third
/// slower).
struct Ahead {
  const std::byte* at = nullptr;
  const std::byte* end = nullptr;
  std::int64_t step = 64;  ///< Bytes to prefetch per step of a product.

  HWY_INLINE void fetch() {
    const std::byte* const stop = at + std::min<std::int64_t>(step, end - at);
    for (; at < stop; at += 64) {
      __builtin_prefetch(at, 0, 3);
    }
  }
};

// ---- products ---------------------------------------------------------------------------------

/// C = A B (+ C) on blocks. Element (i, k) of A is a[i a_row + k a_step], so that A may be read
/// transposed. Rows of B and C are b_stride and c_stride apart and hold whole vectors. B may have
/// 16 bits, which are widened when it is read. Each element of C is summed over k in order,
/// whatever the other arguments are.
template <typename B>
struct Product {
  const float* a;
  std::int64_t a_row, a_step;
  const B* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
  Ahead* ahead = nullptr;  ///< Each step prefetches a part of it.
};

/// How many steps of k there are. If `more` is given, row i of a group of four or fewer takes
/// `more[i]` steps beyond `steps`, because rows near the diagonal of a causal mask see different
/// numbers of keys.
struct Steps {
  std::int64_t steps;
  const std::int64_t* more = nullptr;
};

// Rows [0, kRows) of C, kVectors vectors from column 0, summed in registers.
template <int kRows, int kVectors, typename B>
HWY_INLINE void product_tile(const Product<B>& p, Steps steps, bool add) {
  const F32 d;
  V32 sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int n = 0; n < kVectors; ++n) {
      sum[i][n] = add ? hn::LoadU(d, p.c + i * p.c_stride + n * kLanes) : hn::Zero(d);
    }
  }
  const float* HWY_RESTRICT a = p.a;
  const B* HWY_RESTRICT b = p.b;
  Ahead ahead = p.ahead == nullptr ? Ahead() : *p.ahead;
  for (std::int64_t k = 0; k < steps.steps; ++k, a += p.a_step, b += p.b_stride) {
    ahead.fetch();
    V32 row[kVectors];
    for (int n = 0; n < kVectors; ++n) row[n] = load(d, b + n * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const V32 x = hn::Set(d, a[i * p.a_row]);
      for (int n = 0; n < kVectors; ++n) sum[i][n] = hn::MulAdd(x, row[n], sum[i][n]);
    }
  }
  if (p.ahead != nullptr) *p.ahead = ahead;
  if (steps.more != nullptr) {
    for (std::int64_t k = 0; k < steps.more[kRows - 1]; ++k, a += p.a_step, b += p.b_stride) {
      for (int i = 0; i < kRows; ++i) {
        if (k >= steps.more[i]) continue;
        const V32 x = hn::Set(d, a[i * p.a_row]);
        for (int n = 0; n < kVectors; ++n) {
          sum[i][n] = hn::MulAdd(x, load(d, b + n * kLanes), sum[i][n]);
        }
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int n = 0; n < kVectors; ++n) {
      hn::StoreU(sum[i][n], d, p.c + i * p.c_stride + n * kLanes);
    }
  }
}

template <int kRows, int kVectors, typename B>
HWY_INLINE void product_columns(Product<B>& p, std::int64_t& columns, Steps steps, bool add) {
  for (; columns >= kVectors * kLanes; columns -= kVectors * kLanes) {
    product_tile<kRows, kVectors>(p, steps, add);
    p.b += kVectors * kLanes;
    p.c += kVectors * kLanes;
  }
}

/// kRows rows and `columns` columns (whole vectors) of C. The tile sizes keep eight sums in flight
/// if possible (two multiply-adds per cycle, four cycles each) and fit the registers: 32 with
/// AVX-512, 16 otherwise.
template <int kRows, typename B>
HWY_NOINLINE void product_rows(Product<B> p, std::int64_t columns, Steps steps, bool add) {
  if constexpr (kRows == 1) product_columns<kRows, 8>(p, columns, steps, add);
  if constexpr (kRows <= 2 || kLanes == 16) product_columns<kRows, 4>(p, columns, steps, add);
  product_columns<kRows, 2>(p, columns, steps, add);
  product_columns<kRows, 1>(p, columns, steps, add);
}

/// Which part of a product a group of rows needs: columns [begin, end), steps [first, last).
struct Part {
  std::int64_t begin, end, first, last;
};

/// Rows [0, rows) of C in groups of four or fewer. part_of(i, n) returns what rows [i, i + n) need.
template <typename B, typename PartOf>
HWY_INLINE void product(const Product<B>& p, std::int64_t rows, bool add, const PartOf& part_of) {
  const auto run = [&](std::int64_t i, auto count) HWY_ATTR {
    constexpr int kRows = decltype(count)::value;
    const Part part = part_of(i, static_cast<std::int64_t>(kRows));
    Product<B> q = p;
    q.a += i * p.a_row + part.first * p.a_step;
    q.b += part.first * p.b_stride + part.begin;
    q.c += i * p.c_stride + part.begin;
    product_rows<kRows>(q, part.end - part.begin,
                        {std::max<std::int64_t>(0, part.last - part.first)}, add);
  };
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4) run(i, std::integral_constant<int, 4>());
  if (i + 2 <= rows) run(i, std::integral_constant<int, 2>()), i += 2;
  if (i < rows) run(i, std::integral_constant<int, 1>());
}

// ---- blocks -----------------------------------------------------------------------------------

/// Copies rows of `dim` elements that are `stride` apart, times `factor`, to f32 rows of
/// padded(dim) with zeros at their ends.
template <typename T>
HWY_INLINE void copy_rows(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t dim,
                          float factor, float* to) {
  const F32 d;
  const V32 scale = hn::Set(d, factor);
  const std::int64_t to_stride = padded(dim);
  for (std::int64_t i = 0; i < rows; ++i, from += stride, to += to_stride) {
    std::int64_t n = 0;
    for (; n + kLanes <= dim; n += kLanes) {
      hn::StoreU(hn::Mul(load(d, from + n), scale), d, to + n);
    }
    if (n < dim) {
      hn::StoreU(hn::Mul(load_n(d, from + n, dim - n), scale), d, to + n);
      n += kLanes;
    }
    for (; n < to_stride; n += kLanes) hn::StoreU(hn::Zero(d), d, to + n);
  }
}

/// Copies back: `dim` elements of each padded row, times `factor`.
HWY_INLINE void store_rows(const float* from, std::int64_t rows, std::int64_t dim, float factor,
                           float* to, std::int64_t stride) {
  const F32 d;
  const V32 scale = hn::Set(d, factor);
  for (std::int64_t i = 0; i < rows; ++i, from += padded(dim), to += stride) {
    std::int64_t n = 0;
    for (; n + kLanes <= dim; n += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, from + n), scale), d, to + n);
    }
    if (n < dim) store_n(d, hn::Mul(hn::LoadU(d, from + n), scale), to + n, dim - n);
  }
}

HWY_INLINE void zero(float* to, std::int64_t count) {  // A multiple of kPad.
  const F32 d;
  for (std::int64_t n = 0; n < count; n += kLanes) hn::StoreU(hn::Zero(d), d, to + n);
}

// Four elements each of row(0), row(4), ... in the 128-bit blocks of one vector.
template <typename RowOf>
HWY_INLINE V32 load_blocks(const RowOf& row) {
  const hn::CappedTag<float, 4> d4;
#if HWY_TARGET == HWY_AVX3
  const hn::CappedTag<float, 8> d8;
  const F32 d;
  return hn::Combine(d, hn::Combine(d8, load(d4, row(12)), load(d4, row(8))),
                     hn::Combine(d8, load(d4, row(4)), load(d4, row(0))));
#elif HWY_TARGET == HWY_AVX2
  const F32 d;
  return hn::Combine(d, load(d4, row(4)), load(d4, row(0)));
#else
  return load(d4, row(0));
#endif
}

/// Copies kLanes rows of `dim` elements to as many columns of a block [dim, kKeyBlock]. row(i) is
/// the beginning of row i.
template <typename T, typename RowOf>
HWY_INLINE void transpose(const RowOf& row, std::int64_t dim, T* to) {
  const F32 d;
  const hn::Repartition<double, F32> pairs;
  std::int64_t k = 0;
  for (; k + 4 <= dim; k += 4, to += 4 * kKeyBlock) {
    // Vector i holds rows i, 4 + i, 8 + i, ... in its blocks: transposing each block leaves every
    // output vector with its rows in order.
    const auto blocks = [&](int i)
                            HWY_ATTR { return load_blocks([&](int n) { return row(n + i) + k; }); };
    const V32 v0 = blocks(0), v1 = blocks(1), v2 = blocks(2), v3 = blocks(3);
    const auto a = hn::BitCast(pairs, hn::InterleaveLower(d, v0, v1));
    const auto b = hn::BitCast(pairs, hn::InterleaveUpper(d, v0, v1));
    const auto e = hn::BitCast(pairs, hn::InterleaveLower(d, v2, v3));
    const auto f = hn::BitCast(pairs, hn::InterleaveUpper(d, v2, v3));
    store(d, hn::BitCast(d, hn::InterleaveLower(pairs, a, e)), to);
    store(d, hn::BitCast(d, hn::InterleaveUpper(pairs, a, e)), to + kKeyBlock);
    store(d, hn::BitCast(d, hn::InterleaveLower(pairs, b, f)), to + 2 * kKeyBlock);
    store(d, hn::BitCast(d, hn::InterleaveUpper(pairs, b, f)), to + 3 * kKeyBlock);
  }
  for (; k < dim; ++k, to += kKeyBlock) {
    for (std::int64_t i = 0; i < kLanes; ++i) to[i] = from_f32<T>(row(i)[k]);
  }
}

/// Copies rows [0, rows) of `dim` elements to columns of `to` [dim, kKeyBlock]; `rows` is at least
/// 1. Columns up to the next whole vector repeat the last row, so that they never hold anything
/// else.
inline HWY_NOINLINE void copy_transposed(const float* from, std::int64_t stride, std::int64_t rows,
                                         std::int64_t dim, float* to) {
  std::int64_t first = 0;
  for (; first + kLanes <= rows; first += kLanes) {
    const float* const base = from + first * stride;
    transpose([&](std::int64_t i) { return base + i * stride; }, dim, to + first);
  }
  if (first < rows) {
    const float* row[kLanes];
    for (std::int64_t i = 0; i < kLanes; ++i) {
      row[i] = from + std::min(first + i, rows - 1) * stride;
    }
    transpose([&](std::int64_t i) { return row[i]; }, dim, to + first);
  }
}

// ---- weights ----------------------------------------------------------------------------------

constexpr std::int64_t floor_lanes(std::int64_t n) { return n / kLanes * kLanes; }
constexpr std::int64_t ceil_lanes(std::int64_t n) { return round_up(n, kLanes); }

/// The lanes of the vector at `column` that are in `range`; at least one is.
HWY_INLINE hn::Mask<F32> in_range(std::int64_t column, KeyRange range) {
  const F32 d;
  const auto first = [&](std::int64_t n) HWY_ATTR {
    return hn::FirstN(d, static_cast<std::size_t>(std::min(n - column, kLanes)));
  };
  return range.begin <= column ? first(range.end)
                               : hn::AndNot(first(range.begin), first(range.end));
}
constexpr bool whole(std::int64_t column, KeyRange range) {
  return column >= range.begin && column + kLanes <= range.end;
}

/// e^x for weights, which are at most 1 (x up to about 1 does no harm): within 2 ulp down to e^-87,
/// which is also the result for smaller x; NaN gives NaN. It needs two thirds of the instructions
/// of exp(), which matters beside the products if head_dim is small. The polynomial is the same.
HWY_INLINE V32 exp_weight(V32 x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  // Adding 1.5 2^23 rounds to an integer n and leaves it in the low bits.
  const V32 magic = hn::Set(d, 0x1.8p23f);
  const V32 clamped = hn::Max(hn::Set(d, -87.0f), x);  // In this order NaN stays NaN.
  const V32 shifted = hn::MulAdd(clamped, hn::Set(d, 1.44269504088896341f), magic);
  const V32 n = hn::Sub(shifted, magic);
  V32 r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V32 p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto exponent =
      hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 127 << 23));
  return hn::Mul(p, hn::BitCast(d, exponent));
}

}  // namespace attention
}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_ATTENTION_BLOCKS_INL_H_
