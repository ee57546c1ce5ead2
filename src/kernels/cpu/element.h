// The element types of float operands as C++ types, so that a kernel can be a template over them,
// and their exact conversions one element at a time.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/float16.h"

namespace volta::cpu {

struct BF16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

inline float to_f32(float x) { return x; }
inline float to_f32(BF16 x) { return f32_from_bf16(x.bits); }
inline float to_f32(F16 x) { return f32_from_f16(x.bits); }

/// Rounds to nearest even.
template <typename T>
T from_f32(float x);
template <>
inline float from_f32<float>(float x) {
  return x;
}
template <>
inline BF16 from_f32<BF16>(float x) {
  return BF16{bf16_from_f32(x)};
}
template <>
inline F16 from_f32<F16>(float x) {
  return F16{f16_from_f32(x)};
}

/// Calls fn(T{}) with the element type of a float dtype: float, BF16 or F16. In a leaf file write
/// `[&](auto element) HWY_ATTR { using T = decltype(element); ... }`.
template <typename Fn>
void visit_float(DType dtype, const Fn& fn) {
  if (dtype == DType::kBF16) return fn(BF16{});
  if (dtype == DType::kF16) return fn(F16{});
  return fn(float{});
}

}  // namespace volta::cpu
