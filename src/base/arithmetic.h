// Whole numbers divided and rounded up, without an intermediate result that overflows: sizes near
// the largest number come from files. C++20-clean, so that kernels of every backend can use it.
#pragma once

#include <concepts>
#include <limits>
#include <type_traits>

namespace [[gnu::visibility("default")]] volta {

/// `value` / `unit`, rounded up. `value` is 0 or more, `unit` 1 or more. Both are signed, or both
/// unsigned; the result has the wider of their types, and always fits it.
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> ceil_div(A value, B unit) {
  static_assert(std::is_signed_v<A> == std::is_signed_v<B>);
  return value / unit + (value % unit != 0 ? 1 : 0);
}

/// The least multiple of `unit` that is `value` or more; for both the same holds as above. Where no
/// such multiple fits the type, its largest number, which no memory and no file is large enough
/// for.
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> round_up(A value, B unit) {
  using T = std::common_type_t<A, B>;
  static_assert(std::is_signed_v<A> == std::is_signed_v<B>);
  constexpr T kMost = std::numeric_limits<T>::max();
  const T rest = value % unit;
  if (rest == 0) return value;
  const T missing = unit - rest;
  return value > kMost - missing ? kMost : value + missing;
}

}  // namespace volta
