// Cast: between floats, rounding to nearest even, and between integers and f32. An f32 becomes an
// integer by dropping its fraction and clamping it to the integer's range; NaN becomes 0.
#include <concepts>
#include <cstdint>
#include <limits>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cast.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

template <typename From, typename To>
void cast_floats(const From* x, To* y, std::int64_t n) {
  const F32 d;
  std::int64_t i = 0;
  for (; i + lanes(d) <= n; i += lanes(d)) store(d, load(d, x + i), y + i);
  if (i < n) store_n(d, load_n(d, x + i, n - i), y + i, n - i);
}

}  // namespace

void cast_between_floats(const View& x, const View& y, std::int64_t begin, std::int64_t end) {
  visit_float(x.dtype, [&](auto from) HWY_ATTR {
    visit_float(y.dtype, [&](auto to) HWY_ATTR {
      // SAFETY: the views hold elements of these types, [begin, end) within them.
      cast_floats(x.as<const decltype(from)>() + begin, y.as<decltype(to)>() + begin, end - begin);
    });
  });
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

// Calls fn(T{}) with the element type of an integer dtype.
template <typename Fn>
void visit_integer(DType dtype, const Fn& fn) {
  if (dtype == DType::kI8) return fn(std::int8_t{});
  if (dtype == DType::kU8) return fn(std::uint8_t{});
  if (dtype == DType::kI32) return fn(std::int32_t{});
  return fn(std::int64_t{});
}

template <std::integral To>
To clamped(float value) {
  // The limits as floats: the upper one may round up to 2^31 or 2^63, which is already too large.
  constexpr auto kLow = static_cast<float>(std::numeric_limits<To>::min());
  constexpr auto kHigh = static_cast<float>(std::numeric_limits<To>::max());
  if (value >= kHigh) return std::numeric_limits<To>::max();
  if (value <= kLow) return std::numeric_limits<To>::min();
  return value == value ? static_cast<To>(value) : To{0};
}

template <typename From, typename To>
To convert(From value) {
  if constexpr (std::integral<To>) {
    return clamped<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <typename From, typename To>
void cast_elements(const View& x, const View& y, std::int64_t begin, std::int64_t end) {
  // SAFETY: the views hold elements of these types, [begin, end) within them.
  const auto* from = x.as<const From>();
  auto* to = y.as<To>();
  for (std::int64_t i = begin; i < end; ++i) to[i] = convert<From, To>(from[i]);
}

}  // namespace

std::int64_t workspace_bytes(const Cast&, const ArgShapes&, const Context&) { return 0; }

// infer allows casts from an integer to f32 and from f32 to an integer, but no others with
// integers.
void run(const Cast&, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const View& y = args.outputs[0];
  split_blocks(context, x.shape.elements(), [&](std::int64_t begin, std::int64_t end) {
    if (is_float(x.dtype) && is_float(y.dtype)) {
      VOLTA_SIMD_CALL(context.simd, cast_between_floats, x, y, begin, end);
    } else if (is_float(x.dtype)) {
      visit_integer(y.dtype,
                    [&](auto to) { cast_elements<float, decltype(to)>(x, y, begin, end); });
    } else {
      visit_integer(x.dtype,
                    [&](auto from) { cast_elements<decltype(from), float>(x, y, begin, end); });
    }
  });
}

}  // namespace volta::cpu
#endif
