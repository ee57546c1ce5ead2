// Loops over whole rows, compiled once per instruction set (see simd.h). transform computes each
// element from the inputs' elements at the same place. sum and max fold a row in a fixed order of
// lanes that depends only on the row's length and the instruction set. They know no op. transform
// may write over what it reads.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_ROWS_INL_H_
#undef VOLTA_KERNELS_CPU_ROWS_INL_H_
#else
#define VOLTA_KERNELS_CPU_ROWS_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

// SAFETY of all of these: the caller owns n elements behind every pointer; no others are touched.

/// How much of a vector is within the row: all of it, or the first n lanes.
struct Whole {};
struct Part {
  std::int64_t n;
};
template <class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* x, Whole) {
  return load(d, x);
}
template <class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* x, Part part) {
  return load_n(d, x, part.n);
}
template <class D, typename T>
HWY_INLINE void store(D d, hn::Vec<D> v, T* y, Whole) {
  store(d, v, y);
}
template <class D, typename T>
HWY_INLINE void store(D d, hn::Vec<D> v, T* y, Part part) {
  store_n(d, v, y, part.n);
}

/// Calls fn(i, extent) for every vector of a row of n elements. i is the vector's first element,
/// and extent is Whole or, at the end, Part:
/// `[&](std::int64_t i, auto extent) HWY_ATTR { store(d, load(d, x + i, extent), y + i, extent);
/// }`.
template <class Fn>
HWY_INLINE void for_each_vector(std::int64_t n, const Fn& fn) {
  const F32 d;
  std::int64_t i = 0;
  for (; i + lanes(d) <= n; i += lanes(d)) fn(i, Whole{});
  if (i < n) fn(i, Part{n - i});
}

/// y[i] = fn(x[i]...) for i < n. fn takes and returns vectors: `[&](V32 a) HWY_ATTR { .. }`. It
/// takes four vectors at a time and reads them before it writes any. So the compiler can mix their
/// instructions, because those of one vector wait for each other.
template <class Fn, typename... T>
HWY_INLINE void transform(std::int64_t n, float* y, const Fn& fn, const T*... x) {
  const F32 d;
  const std::int64_t width = lanes(d);
  std::int64_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width) {
    const V32 a = fn(load(d, x + i)...);
    const V32 b = fn(load(d, x + i + width)...);
    const V32 c = fn(load(d, x + i + 2 * width)...);
    const V32 e = fn(load(d, x + i + 3 * width)...);
    store(d, a, y + i);
    store(d, b, y + i + width);
    store(d, c, y + i + 2 * width);
    store(d, e, y + i + 3 * width);
  }
  for (; i + width <= n; i += width) store(d, fn(load(d, x + i)...), y + i);
  if (i < n) store_n(d, fn(load_n(d, x + i, n - i)...), y + i, n - i);
}

/// The sum of at(i, extent) over all vectors of n elements (as for for_each_vector). There are four
/// accumulators, so that additions need not wait for each other. Lanes of at() after the end are
/// not counted.
template <class At>
HWY_INLINE float sum_each(std::int64_t n, const At& at) {
  const F32 d;
  const std::int64_t width = lanes(d);
  V32 a = hn::Zero(d), b = a, c = a, e = a;
  std::int64_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width) {
    a = hn::Add(a, at(i, Whole{}));
    b = hn::Add(b, at(i + width, Whole{}));
    c = hn::Add(c, at(i + 2 * width, Whole{}));
    e = hn::Add(e, at(i + 3 * width, Whole{}));
  }
  for (; i + width <= n; i += width) a = hn::Add(a, at(i, Whole{}));
  if (i < n) {
    const auto inside = hn::FirstN(d, static_cast<std::size_t>(n - i));
    b = hn::Add(b, hn::IfThenElseZero(inside, at(i, Part{n - i})));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

/// The sum of fn(x[i]...) for i < n.
template <class Fn, typename... T>
HWY_INLINE float sum(std::int64_t n, const Fn& fn, const T*... x) {
  const F32 d;
  return sum_each(
      n, [&](std::int64_t i, auto extent) HWY_ATTR { return fn(load(d, x + i, extent)...); });
}

/// The largest of fn(x[i]) for i < n, NaN if any is NaN, -infinity if n is 0. NaN is tested
/// separately, because what Max makes of it depends on the instruction set.
template <class Fn>
HWY_INLINE float max(std::int64_t n, const Fn& fn, const float* x) {
  const F32 d;
  V32 a = hn::Set(d, -std::numeric_limits<float>::infinity()), b = a;
  auto nan = hn::IsNaN(a);
  std::int64_t i = 0;
  for (; i + 2 * lanes(d) <= n; i += 2 * lanes(d)) {
    const V32 v = fn(load(d, x + i)), w = fn(load(d, x + i + lanes(d)));
    nan = hn::Or(nan, hn::Or(hn::IsNaN(v), hn::IsNaN(w)));
    a = hn::Max(a, v);
    b = hn::Max(b, w);
  }
  for (; i < n; i += lanes(d)) {
    const std::int64_t left = n - i < lanes(d) ? n - i : lanes(d);
    const auto inside = hn::FirstN(d, static_cast<std::size_t>(left));
    const V32 v = hn::IfThenElse(inside, fn(load_n(d, x + i, left)), b);
    nan = hn::Or(nan, hn::IsNaN(v));
    b = hn::Max(b, v);
  }
  if (!hn::AllFalse(d, nan)) return std::numeric_limits<float>::quiet_NaN();
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b)));
}

HWY_INLINE float max(std::int64_t n, const float* x) {
  return max(n, [](V32 v) HWY_ATTR { return v; }, x);
}

/// The largest of fn(x[i]) for i < n if none is NaN, otherwise anything: for callers whose sums
/// become NaN anyway.
template <class Fn>
HWY_INLINE float max_of_numbers(std::int64_t n, const Fn& fn, const float* x) {
  const F32 d;
  const std::int64_t width = lanes(d);
  V32 a = hn::Set(d, -std::numeric_limits<float>::infinity()), b = a, c = a, e = a;
  std::int64_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width) {
    a = hn::Max(a, fn(load(d, x + i)));
    b = hn::Max(b, fn(load(d, x + i + width)));
    c = hn::Max(c, fn(load(d, x + i + 2 * width)));
    e = hn::Max(e, fn(load(d, x + i + 3 * width)));
  }
  for (; i + width <= n; i += width) a = hn::Max(a, fn(load(d, x + i)));
  if (i < n) {
    const auto inside = hn::FirstN(d, static_cast<std::size_t>(n - i));
    b = hn::IfThenElse(inside, hn::Max(b, fn(load_n(d, x + i, n - i))), b);
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(c, e))));
}

/// y[j] = the sum over r < rows of x[r * stride + j], in the order of the rows, for j < columns.
inline void sum_columns(const float* x, std::int64_t stride, std::int64_t rows, float* y,
                        std::int64_t columns) {
  const F32 d;
  const std::int64_t width = lanes(d);
  std::int64_t j = 0;
  for (; j + 4 * width <= columns; j += 4 * width) {
    V32 a = hn::Zero(d), b = a, c = a, e = a;
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* row = x + r * stride + j;
      a = hn::Add(a, load(d, row));
      b = hn::Add(b, load(d, row + width));
      c = hn::Add(c, load(d, row + 2 * width));
      e = hn::Add(e, load(d, row + 3 * width));
    }
    store(d, a, y + j);
    store(d, b, y + j + width);
    store(d, c, y + j + 2 * width);
    store(d, e, y + j + 3 * width);
  }
  for (; j < columns; j += width) {
    const std::int64_t n = columns - j < width ? columns - j : width;
    V32 a = hn::Zero(d);
    for (std::int64_t r = 0; r < rows; ++r) a = hn::Add(a, load_n(d, x + r * stride + j, n));
    store_n(d, a, y + j, n);
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_ROWS_INL_H_
