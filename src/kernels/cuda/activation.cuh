// The functions of one element that Unary, GatedUnit and MatMul share, and their slopes, in f32.
//
// Where a product meets an addition, the code says whether they are one fused operation (fmaf) or
// two (__fmul_rn, __fadd_rn). Otherwise the compiler would choose, differently in each kernel, and
// an op would have other bits in the epilogue of a MatMul than by itself.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "ops/op.h"

namespace volta::cuda {

/// x / y for y in [1, 2], to about one unit in the last place. Without the branches of a division
/// in general, so that the divisions of a lane's elements overlap.
__device__ inline float divide_by_1_to_2(float x, float y) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
  r = fmaf(r, fmaf(-y, r, 1.0f), r);
  return __fmul_rn(x, r);
}

/// 1 / (1 + e^-x). The exponential never overflows, so that nothing is lost for x < -88, where
/// e^-x is infinite and the result is not yet 0.
__device__ inline float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return divide_by_1_to_2(x < 0.0f ? e : 1.0f, __fadd_rn(1.0f, e));
}

/// The argument of sigmoid in GELU's tanh form: 0.5 (1 + tanh(u)) = sigmoid(2u), which does not
/// cancel for negative u, with 2u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
__device__ inline float gelu_tanh_argument(float x) {
  const float cubic = __fmul_rn(__fmul_rn(x, x), 0.044715f);
  return __fmul_rn(1.5957691216057308f, fmaf(cubic, x, x));
}

/// |x|, but at most 14.5, because x Phi(-x) is 0 in f32 beyond that. NaN stays.
__device__ inline float normal_range(float x) {
  const float a = fabsf(x);
  return a > 14.5f ? 14.5f : a;
}

/// The normal distribution's Phi(-a) for a in [0, 14.5], accurate relative to its value: the
/// polynomial of kernels/cpu/math-inl.h, which explains it. It costs about a third of normcdff.
__device__ inline float normal_tail(float a) {
  const float s = fmaf(a, 1.0f / 6.55f, -1.0f);
  float p = fmaf(0.00622510025f, s, -0.00499874074f);
  p = fmaf(p, s, -0.0124598164f);
  p = fmaf(p, s, 0.0116968444f);
  p = fmaf(p, s, -0.000327336485f);
  p = fmaf(p, s, 0.0112745129f);
  p = fmaf(p, s, -0.0288166646f);
  p = fmaf(p, s, 0.0427601188f);
  p = fmaf(p, s, -0.0655959994f);
  p = fmaf(p, s, 0.102871805f);
  p = fmaf(p, s, -0.160428509f);
  p = fmaf(p, s, 0.25755015f);
  p = fmaf(p, s, -0.468565285f);
  p = fmaf(a, -0.72134752044448170f, p);
  return exp2f(fmaf(a, p, -1.0f));
}

/// kind(x); only kScale reads alpha.
__device__ inline float apply_unary(UnaryKind kind, float alpha, float x) {
  switch (kind) {
    case UnaryKind::kNone:
      return x;
    case UnaryKind::kScale:
      return __fmul_rn(alpha, x);
    case UnaryKind::kExp:
      return expf(x);
    case UnaryKind::kLog:
      return logf(x);
    case UnaryKind::kSqrt:
      return sqrtf(x);
    case UnaryKind::kSquare:
      return __fmul_rn(x, x);
    case UnaryKind::kReciprocal:
      return 1.0f / x;
    case UnaryKind::kTanh:
      return tanhf(x);
    case UnaryKind::kRelu:
      // A NaN stays a NaN, which fmaxf would drop.
      return x < 0.0f ? 0.0f : x;
    case UnaryKind::kGelu: {
      // x Phi(x) = max(x, 0) - |x| Phi(-|x|), which does not cancel for negative x.
      const float a = normal_range(x);
      return fmaf(-a, normal_tail(a), x > 0.0f ? x : 0.0f);
    }
    case UnaryKind::kGeluTanh:
      return __fmul_rn(x, sigmoid(gelu_tanh_argument(x)));
    case UnaryKind::kSilu:
      return __fmul_rn(x, sigmoid(x));
  }
  return x;
}

/// kind'(x); only kScale reads alpha.
__device__ inline float unary_slope(UnaryKind kind, float alpha, float x) {
  switch (kind) {
    case UnaryKind::kNone:
      return 1.0f;
    case UnaryKind::kScale:
      return alpha;
    case UnaryKind::kExp:
      return expf(x);
    case UnaryKind::kLog:
      return 1.0f / x;
    case UnaryKind::kSqrt:
      return 0.5f / sqrtf(x);
    case UnaryKind::kSquare:
      return __fadd_rn(x, x);
    case UnaryKind::kReciprocal:
      return -1.0f / __fmul_rn(x, x);
    case UnaryKind::kTanh: {
      const float y = tanhf(x);
      return fmaf(-y, y, 1.0f);
    }
    case UnaryKind::kRelu:
      return x <= 0.0f ? 0.0f : 1.0f;  // NaN lets the gradient through, as on the CPU.
    case UnaryKind::kGelu: {
      // Phi(x) + x phi(x) with phi(x) = exp(-x^2 / 2) / sqrt(2 pi). At x = -a this is
      // Phi(-a) - a phi(a); at x = a it is 1 minus that.
      const float a = normal_range(x);
      const float density =
          exp2f(fmaf(__fmul_rn(a, -0.72134752044448170f), a, -1.3257480647361593f));
      const float left = fmaf(-a, density, normal_tail(a));
      return x < 0.0f ? left : __fadd_rn(1.0f, -left);
    }
    case UnaryKind::kGeluTanh: {
      // s + x s (1 - s) u'. It is 0 or 1 far from 0, where x^3 would overflow. NaN stays.
      const float near = x < -16.0f ? -16.0f : (x > 16.0f ? 16.0f : x);
      const float s = sigmoid(gelu_tanh_argument(near));
      const float du =
          __fmul_rn(1.5957691216057308f, fmaf(__fmul_rn(near, near), 3.0f * 0.044715f, 1.0f));
      return fmaf(__fmul_rn(__fmul_rn(near, s), __fadd_rn(1.0f, -s)), du, s);
    }
    case UnaryKind::kSilu: {
      const float s = sigmoid(x);
      return fmaf(__fmul_rn(x, s), __fadd_rn(1.0f, -s), s);
    }
  }
  return 0.0f;
}

/// A kind that is known when a kernel is compiled: apply_unary(Kind::value, ..) is then the code of
/// this kind alone.
template <UnaryKind kKind>
using ConstantKind = std::integral_constant<UnaryKind, kKind>;

/// Calls body(ConstantKind<activation>()). infer refuses all other kinds.
template <typename Body>
__device__ inline void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case UnaryKind::kRelu:
      return body(ConstantKind<UnaryKind::kRelu>());
    case UnaryKind::kGelu:
      return body(ConstantKind<UnaryKind::kGelu>());
    case UnaryKind::kGeluTanh:
      return body(ConstantKind<UnaryKind::kGeluTanh>());
    case UnaryKind::kSilu:
      return body(ConstantKind<UnaryKind::kSilu>());
    default:
      return body(ConstantKind<UnaryKind::kNone>());
  }
}

/// Calls body(ConstantKind<kind>()).
template <typename Body>
__device__ inline void with_unary_kind(UnaryKind kind, const Body& body) {
  switch (kind) {
    case UnaryKind::kScale:
      return body(ConstantKind<UnaryKind::kScale>());
    case UnaryKind::kExp:
      return body(ConstantKind<UnaryKind::kExp>());
    case UnaryKind::kLog:
      return body(ConstantKind<UnaryKind::kLog>());
    case UnaryKind::kSqrt:
      return body(ConstantKind<UnaryKind::kSqrt>());
    case UnaryKind::kSquare:
      return body(ConstantKind<UnaryKind::kSquare>());
    case UnaryKind::kReciprocal:
      return body(ConstantKind<UnaryKind::kReciprocal>());
    case UnaryKind::kTanh:
      return body(ConstantKind<UnaryKind::kTanh>());
    default:
      return with_activation(kind, body);
  }
}

}  // namespace volta::cuda
