// Vector helpers that leaf files share, compiled once per instruction set (see simd.h): loads and
// stores of f32, bf16 and f16 as f32, also of partial vectors, and functions that kernels apply to
// whole vectors. Every function is element by element: a result depends neither on its lane nor on
// the other lanes, so that whole and partial vectors give the same bits.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_MATH_INL_H_
#undef VOLTA_KERNELS_CPU_MATH_INL_H_
#else
#define VOLTA_KERNELS_CPU_MATH_INL_H_
#endif

#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/element.h"

// Highway 1.0.3 lacks this name of later versions: the lanes of a tag type, as a constant.
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
  // Used to pack tiles of a transposed a of bf16, step by step.
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

/// p 2^n for p near 1 and an integer n in [-250, 128], rounded once: the result may be subnormal.
template <class D>
HWY_INLINE hn::Vec<D> scale_by_power(D d, hn::Vec<D> p, hn::Vec<D> n) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (HWY_MAX_LANES_D(D) == 16) return hn::Vec<D>{_mm512_scalef_ps(p.raw, n.raw)};
#endif
  // In two factors, because n itself may be out of the range of exponents when the product is not.
  const hn::RebindToSigned<D> di;
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const auto scale0 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  return hn::Mul(hn::Mul(p, scale0), scale1);
}

/// exp() for x <= 89 or NaN, with one instruction less.
template <class D>
HWY_INLINE hn::Vec<D> exp_of_bounded(D d, hn::Vec<D> x) {
  // For smaller x the result is 0 anyway. x86 min and max return their second operand if one is
  // NaN, so this order keeps NaN.
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

/// ln x within 2 ulp, 0 at 1. 0 gives -inf, negative x NaN; inf and NaN stay. Polynomial: Cephes
/// logf.
template <class D>
HWY_INLINE hn::Vec<D> log(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  // x = m 2^e with m in [sqrt 1/2, sqrt 2); subnormal numbers are made normal first.
  const auto subnormal = hn::Lt(x, hn::Set(d, 0x1p-126f));
  const auto normal = hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, 0x1p23f)), x);
  const auto root = hn::Set(di, 0x3F3504F3);
  const auto whole = hn::ShiftRight<23>(hn::Sub(hn::BitCast(di, normal), root));
  const auto m = hn::BitCast(d, hn::Sub(hn::BitCast(di, normal), hn::ShiftLeft<23>(whole)));
  const auto e = hn::Sub(hn::ConvertTo(d, whole), hn::IfThenElseZero(subnormal, hn::Set(d, 23.0f)));
  const auto r = hn::Sub(m, one);
  const auto z = hn::Mul(r, r);
  auto p = hn::MulAdd(hn::Set(d, 7.0376836292e-2f), r, hn::Set(d, -1.1514610310e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.1676998740e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, -1.2420140846e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.4249322787e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, -1.6668057665e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.0000714765e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, -2.4999993993e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 3.3333331174e-1f));
  // + e ln 2, in two parts: the larger has nine bits, so that its product is exact.
  p = hn::MulAdd(hn::Mul(p, r), z, hn::Mul(e, hn::Set(d, -2.12194440e-4f)));
  p = hn::Add(hn::NegMulAdd(z, hn::Set(d, 0.5f), p), r);
  const auto y = hn::MulAdd(e, hn::Set(d, 0.693359375f), p);
  const auto usual = hn::And(hn::Gt(x, zero), hn::Lt(x, infinity));
  const auto special =
      hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity),
                     hn::IfThenElse(hn::Lt(x, zero), hn::Sub(infinity, infinity), x));
  return hn::IfThenElse(usual, y, special);
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

/// 2^r within 3.1 ulp (3 where there is FMA) for r in [0, 1], 1 at 0. Polynomial: minimax.
template <class D>
HWY_INLINE hn::Vec<D> exp2_of_fraction(D d, hn::Vec<D> r) {
  auto p = hn::MulAdd(hn::Set(d, 1.86710816e-3f), r, hn::Set(d, 9.01708007e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.57998754e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.240164459f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.693151295f));
  return hn::MulAdd(p, r, hn::Set(d, 1.0f));
}

/// 2^x within 3.1 ulp (3 where there is FMA) for x up to 127, 1 at 0. -infinity gives 0, NaN NaN.
template <class D>
HWY_INLINE hn::Vec<D> exp2(D d, hn::Vec<D> x) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (HWY_MAX_LANES_D(D) == 16) {  // x - floor(x) in one instruction; the scale floors x.
    return scale_by_power(d, exp2_of_fraction(d, hn::Vec<D>{_mm512_reduce_ps(x.raw, 0x09)}), x);
  }
#endif
  const auto bounded = hn::Max(hn::Set(d, -250.0f), x);  // In this order NaN stays NaN.
  const auto n = hn::Floor(bounded);
  return scale_by_power(d, exp2_of_fraction(d, hn::Sub(bounded, n)), n);
}

/// The normal distribution's Phi(-a) for a in [0, 14.5]. The relative error is below 2e-6 up to a =
/// 4, 1e-5 up to 9 and 1e-4 up to 12.5; for larger a the result is subnormal. 1/2 at 0.
/// log2(Phi(-a)) + a^2 log2(e) / 2 is smooth, so that one polynomial (minimax for these bounds, in
/// s = a / 6.55 - 1) is enough, without a division or a table.
template <class D>
HWY_INLINE hn::Vec<D> normal_tail(D d, hn::Vec<D> a) {
  const auto s = hn::MulAdd(a, hn::Set(d, 1.0f / 6.55f), hn::Set(d, -1.0f));
  auto p = hn::MulAdd(hn::Set(d, 0.00622510025f), s, hn::Set(d, -0.00499874074f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.0124598164f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.0116968444f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.000327336485f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.0112745129f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.0288166646f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.0427601188f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.0655959994f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.102871805f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.160428509f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.25755015f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.468565285f));
  p = hn::MulAdd(a, hn::Set(d, -0.72134752044448170f), p);
  return exp2(d, hn::MulAdd(a, p, hn::Set(d, -1.0f)));
}

/// |x|, but at most 14.5, because x Phi(-x) is 0 in f32 beyond that: the range of normal_tail. NaN
/// stays.
template <class D>
HWY_INLINE hn::Vec<D> normal_range(D d, hn::Vec<D> x) {
  return hn::Min(hn::Set(d, 14.5f), hn::Abs(x));
}

/// x Phi(x): the exact GELU (Hendrycks & Gimpel 2016), as max(x, 0) - |x| Phi(-|x|).
template <class D>
HWY_INLINE hn::Vec<D> gelu(D d, hn::Vec<D> x) {
  const auto a = normal_range(d, x);
  return hn::NegMulAdd(a, normal_tail(d, a), hn::Max(hn::Zero(d), x));
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
