// Vector helpers that leaf files share, compiled once per instruction set (see simd.h): loads and
// stores of f32, bf16 and f16 as f32 with remainders, and the functions kernels apply to whole
// vectors. Every function is element by element: a result depends neither on its lane nor on the
// other lanes, so that remainders and bodies give the same bits.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_MATH_INL_H_
#undef VOLTA_KERNELS_CPU_MATH_INL_H_
#else
#define VOLTA_KERNELS_CPU_MATH_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/element.h"

// Highway 1.0.3 has not this name of later versions: the lanes of a tag type, as a constant.
#ifndef HWY_MAX_LANES_D
#define HWY_MAX_LANES_D(D) (hwy::HWY_NAMESPACE::MaxLanes(D()))
#endif

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The full-width f32 vector's tag and type.
using F32 = hn::ScalableTag<float>;
using V32 = hn::Vec<F32>;

/// Lanes as a signed count, for loops over int64.
template <class D>
HWY_INLINE constexpr std::int64_t lanes(D d) {
  return static_cast<std::int64_t>(hn::MaxLanes(d));
}

// ---- loads and stores -------------------------------------------------------------------------

// SAFETY of all of these: the caller owns Lanes(d) elements at p, or n of them for the _n forms,
// which touch no others. BF16 and F16 are one uint16_t each, so that their arrays may be read and
// written as such by vector loads and stores, which alias anything.

/// Lanes(d) elements as f32, unaligned.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* HWY_RESTRICT p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BF16* HWY_RESTRICT p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const F16* HWY_RESTRICT p) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#else
  // Highway's own SSE4 conversion turns infinities and NaNs into numbers.
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::PromoteTo(di, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(di, 0x8000)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(di, 0x7FFF)));
  // Read as f32 the exponent is 112 too small; the product is exact, for subnormals too.
  const auto finite = hn::BitCast(di, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
  const auto infinity = hn::Set(di, 0x0F800000);
  const auto quiet = hn::IfThenElseZero(hn::Gt(magnitude, infinity), hn::Set(di, 0x00400000));
  const auto special = hn::Or(hn::Or(magnitude, hn::Set(di, 0x7F800000)), quiet);
  const auto is_finite = hn::Lt(magnitude, infinity);
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_finite, finite, special)));
#endif
}

/// The first n elements (0 <= n <= Lanes(d)) as f32, zeros after them.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_n(D d, const T* HWY_RESTRICT p, std::int64_t n) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(T) == sizeof(float)) {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(n)), d, p);
  }
#endif
#if HWY_TARGET == HWY_AVX3
  // Tiles of a transposed a of bf16 are packed with it, step by step.
  if constexpr (std::is_same_v<T, BF16>) {
    const hn::Rebind<std::uint16_t, D> d16;
    const auto mask = hn::FirstN(d16, static_cast<std::size_t>(n));
    const auto bits = hn::MaskedLoad(mask, d16, reinterpret_cast<const std::uint16_t*>(p));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), bits)));
  }
#endif
  alignas(64) T buffer[hn::MaxLanes(D())] = {};
  for (std::int64_t i = 0; i < n; ++i) buffer[i] = p[i];
  return load(d, buffer);
}

/// Stores Lanes(d) values, rounded to nearest even where T is 16 bits wide; unaligned.
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, float* HWY_RESTRICT p) {
  hn::StoreU(v, d, p);
}
template <class D>
HWY_INLINE void store([[maybe_unused]] D d, hn::Vec<D> v, BF16* HWY_RESTRICT p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFFu))));
  const auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40u));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  const auto narrow = hn::IfThenElse(is_nan, nan, rounded);  // < 2^16, so that it fits below.
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, narrow)), d16, reinterpret_cast<std::uint16_t*>(p));
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, F16* HWY_RESTRICT p) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
#else
  alignas(64) float buffer[hn::MaxLanes(D())];
  hn::Store(v, d, buffer);
  for (std::int64_t i = 0; i < lanes(d); ++i) p[i] = from_f32<F16>(buffer[i]);
#endif
}

/// Stores the first n values (0 <= n <= Lanes(d)).
template <class D, typename T>
HWY_INLINE void store_n(D d, hn::Vec<D> v, T* HWY_RESTRICT p, std::int64_t n) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(T) == sizeof(float)) {
    hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(n)), d, p);
    return;
  }
#endif
  alignas(64) T buffer[hn::MaxLanes(D())];
  store(d, v, buffer);
  for (std::int64_t i = 0; i < n; ++i) p[i] = buffer[i];
}

// ---- functions --------------------------------------------------------------------------------

/// p 2^n for p near 1 and a whole n in [-150, 128], rounded once: the result may be subnormal.
template <class D>
HWY_INLINE hn::Vec<D> scale_by_power(D d, hn::Vec<D> p, hn::Vec<D> n) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (HWY_MAX_LANES_D(D) == 16) return hn::Vec<D>{_mm512_scalef_ps(p.raw, n.raw)};
#endif
  // In two factors: n itself may leave the range of exponents when the product does not.
  const hn::RebindToSigned<D> di;
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const auto scale0 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  return hn::Mul(hn::Mul(p, scale0), scale1);
}

/// exp() for x <= 89 or NaN: an instruction less.
template <class D>
HWY_INLINE hn::Vec<D> exp_of_bounded(D d, hn::Vec<D> x) {
  // Below this the result is 0 anyway. x86 min and max give their second operand when one is NaN:
  // this order keeps it.
  const auto clamped = hn::Max(hn::Set(d, -104.0f), x);
  const auto n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504088896341f)));
  // x - n ln 2 in two steps; the first constant has nine bits, so that its product is exact.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  auto p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  return scale_by_power(d, p, n);
}

/// e^x within 2 ulp, also where the result is subnormal. -inf gives 0, overflow inf, NaN NaN.
/// Range reduction and polynomial: Cephes expf (Moshier).
template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  return exp_of_bounded(d, hn::Min(hn::Set(d, 89.0f), x));
}

/// 1 / (1 + e^-x).
template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

/// tanh x within 3 ulp: a polynomial near 0 (Cephes tanhf), 1 - 2 / (e^2|x| + 1) elsewhere.
template <class D>
HWY_INLINE hn::Vec<D> tanh(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto magnitude = hn::Abs(x);
  const auto z = hn::Mul(x, x);
  auto p = hn::MulAdd(hn::Set(d, -5.70498872745e-3f), z, hn::Set(d, 2.06390887954e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, -5.37397155531e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.33314422036e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, -3.33332819422e-1f));
  const auto small = hn::MulAdd(hn::Mul(p, z), x, x);
  const auto e = exp(d, hn::Add(magnitude, magnitude));
  const auto large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), small, hn::CopySign(large, x));
}

/// The normal distribution's Phi(x) = erfc(-x / sqrt 2) / 2. Relative error below 2e-6 down to x =
/// -4 and 1e-5 down to -9: no cancellation in the left tail. erfc: Numerical Recipes, erfcc.
template <class D>
HWY_INLINE hn::Vec<D> normal_cdf(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto z = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678118654752f));
  const auto t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.5f), z, one));
  auto p = hn::MulAdd(hn::Set(d, 0.17087277f), t, hn::Set(d, -0.82215223f));
  p = hn::MulAdd(p, t, hn::Set(d, 1.48851587f));
  p = hn::MulAdd(p, t, hn::Set(d, -1.13520398f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.27886807f));
  p = hn::MulAdd(p, t, hn::Set(d, -0.18628806f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.09678418f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.37409196f));
  p = hn::MulAdd(p, t, hn::Set(d, 1.00002368f));
  p = hn::MulAdd(p, t, hn::Set(d, -1.26551223f));
  const auto tail =
      hn::Mul(hn::Mul(hn::Set(d, 0.5f), t), exp_of_bounded(d, hn::NegMulAdd(z, z, p)));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
}

/// x Phi(x): the exact GELU (Hendrycks & Gimpel 2016).
template <class D>
HWY_INLINE hn::Vec<D> gelu(D d, hn::Vec<D> x) {
  return hn::Mul(x, normal_cdf(d, x));
}

/// Its tanh approximation: x / 2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written as
/// x sigmoid(2 ..), which loses nothing in the left tail.
template <class D>
HWY_INLINE hn::Vec<D> gelu_tanh(D d, hn::Vec<D> x) {
  const auto cubic = hn::MulAdd(hn::Mul(hn::Mul(x, x), hn::Set(d, 0.044715f)), x, x);
  return hn::Mul(x, sigmoid(d, hn::Mul(hn::Set(d, 1.5957691216057308f), cubic)));
}

/// x sigmoid(x).
template <class D>
HWY_INLINE hn::Vec<D> silu(D d, hn::Vec<D> x) {
  return hn::Mul(x, sigmoid(d, x));
}

/// max(x, 0); NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> relu(D d, hn::Vec<D> x) {
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_MATH_INL_H_
