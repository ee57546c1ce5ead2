// The nonlinearities as values and slopes, compiled once per instruction set (see simd.h). Shared
// by Unary, UnaryGrad, GatedUnit and GatedUnitGrad.

// Include guard, toggled once per target.
#if defined(VOLTA_KERNELS_CPU_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VOLTA_KERNELS_CPU_ACTIVATION_INL_H_
#undef VOLTA_KERNELS_CPU_ACTIVATION_INL_H_
#else
#define VOLTA_KERNELS_CPU_ACTIVATION_INL_H_
#endif

#include "kernels/cpu/math-inl.h"
#include "ops/op.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

struct Identity {
  static HWY_INLINE V32 value(F32, V32 x) { return x; }
  static HWY_INLINE V32 slope(F32 d, V32) { return hn::Set(d, 1.0f); }
};

struct Relu {
  static HWY_INLINE V32 value(F32 d, V32 x) { return relu(d, x); }
  static HWY_INLINE V32 slope(F32 d, V32 x) {
    return hn::IfThenElse(hn::Le(x, hn::Zero(d)), hn::Zero(d), hn::Set(d, 1.0f));
  }
};

struct Tanh {
  static HWY_INLINE V32 value(F32 d, V32 x) { return tanh(d, x); }
  static HWY_INLINE V32 slope(F32 d, V32 x) {
    const V32 t = tanh(d, x);
    return hn::NegMulAdd(t, t, hn::Set(d, 1.0f));
  }
};

struct Gelu {
  static HWY_INLINE V32 value(F32 d, V32 x) { return gelu(d, x); }
  // Phi(x) + x phi(x), where phi(x) = exp(-x^2 / 2) / sqrt(2 pi). At x = -a this is Phi(-a) - a
  // phi(a); at x = a it is 1 minus that.
  static HWY_INLINE V32 slope(F32 d, V32 x) {
    const V32 a = normal_range(d, x);
    const V32 density = exp2(d, hn::MulAdd(hn::Mul(a, hn::Set(d, -0.72134752044448170f)), a,
                                           hn::Set(d, -1.3257480647361593f)));
    const V32 left = hn::NegMulAdd(a, density, normal_tail(d, a));
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), left, hn::Sub(hn::Set(d, 1.0f), left));
  }
};

struct GeluTanh {
  static HWY_INLINE V32 value(F32 d, V32 x) { return gelu_tanh(d, x); }
  // x s(u), u = 2 sqrt(2 / pi) (x + 0.044715 x^3): s + x s (1 - s) u'.
  // It is 0 or 1 far from 0, where x^3 would overflow. NaN stays: it is the second operand.
  static HWY_INLINE V32 slope(F32 d, V32 any) {
    const V32 one = hn::Set(d, 1.0f);
    const V32 x = hn::Max(hn::Set(d, -16.0f), hn::Min(hn::Set(d, 16.0f), any));
    const V32 square = hn::Mul(x, x);
    const V32 u = hn::Mul(hn::Set(d, 1.5957691216057308f),
                          hn::MulAdd(hn::Mul(square, hn::Set(d, 0.044715f)), x, x));
    const V32 s = sigmoid(d, u);
    const V32 du = hn::Mul(hn::Set(d, 1.5957691216057308f),
                           hn::MulAdd(square, hn::Set(d, 3 * 0.044715f), one));
    return hn::MulAdd(hn::Mul(hn::Mul(x, s), hn::Sub(one, s)), du, s);
  }
};

struct Silu {
  static HWY_INLINE V32 value(F32 d, V32 x) { return silu(d, x); }
  // s + x s (1 - s).
  static HWY_INLINE V32 slope(F32 d, V32 x) {
    const V32 s = sigmoid(d, x);
    return hn::MulAdd(hn::Mul(x, s), hn::Sub(hn::Set(d, 1.0f), s), s);
  }
};

/// Calls fn(Struct{}) with the struct above for `activation`. infer refuses all other kinds.
template <class Fn>
HWY_INLINE void visit_activation(UnaryKind activation, const Fn& fn) {
  switch (activation) {
    case UnaryKind::kRelu:
      return fn(Relu{});
    case UnaryKind::kGelu:
      return fn(Gelu{});
    case UnaryKind::kGeluTanh:
      return fn(GeluTanh{});
    case UnaryKind::kSilu:
      return fn(Silu{});
    default:
      return fn(Identity{});
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // VOLTA_KERNELS_CPU_ACTIVATION_INL_H_
