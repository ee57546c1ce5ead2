// Integer division and rounding upwards, without intermediate results that overflow, because files
// may contain sizes near the largest integer. C++20-clean, so that kernels of every backend can use
// it.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace [[gnu::visibility("default")]] volta {

/// No size, count or step that comes from a file or an option may be larger. It is far beyond all
/// real ones, and sums and small multiples of such numbers do not overflow. What a value is used
/// for may limit it further.
inline constexpr std::int64_t kMaxPlausibleCount = std::int64_t{1} << 40;

/// `value` / `unit`, rounded up. `value` is at least 0, `unit` at least 1. Both types are signed or
/// both unsigned. The result has the wider type and always fits into it.
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> ceil_div(A value, B unit) {
  static_assert(std::is_signed_v<A> == std::is_signed_v<B>);
  return value / unit + (value % unit != 0 ? 1 : 0);
}

/// The least multiple of `unit` that is at least `value`; the conditions are those of ceil_div. If
/// no such multiple fits into the type, the result is the type's largest number, which is larger
/// than any memory or file.
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

/// The beginning of part `part` when [0, n) is cut into `parts` nearly equal parts. The first n %
/// parts of them hold one more.
template <std::integral T>
constexpr T part_begin(T n, T parts, T part) {
  const T longer = n % parts;
  return n / parts * part + (part < longer ? part : longer);
}

}  // namespace volta
