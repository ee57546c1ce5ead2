// Unary and UnaryGrad: one element in, one out. The output may be the memory of an input.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/unary.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

// The functions of Unary that are not activations, in the same form.
struct Scale {
  float alpha;
  HWY_INLINE V32 value(F32 d, V32 x) const { return hn::Mul(hn::Set(d, alpha), x); }
  HWY_INLINE V32 slope(F32 d, V32) const { return hn::Set(d, alpha); }
};
struct Exp {
  static HWY_INLINE V32 value(F32 d, V32 x) { return exp(d, x); }
  static HWY_INLINE V32 slope(F32 d, V32 x) { return exp(d, x); }
};
struct Log {
  static HWY_INLINE V32 value(F32 d, V32 x) { return log(d, x); }
  static HWY_INLINE V32 slope(F32 d, V32 x) { return hn::Div(hn::Set(d, 1.0f), x); }
};
struct Sqrt {
  static HWY_INLINE V32 value(F32, V32 x) { return hn::Sqrt(x); }
  static HWY_INLINE V32 slope(F32 d, V32 x) { return hn::Div(hn::Set(d, 0.5f), hn::Sqrt(x)); }
};
struct Square {
  static HWY_INLINE V32 value(F32, V32 x) { return hn::Mul(x, x); }
  static HWY_INLINE V32 slope(F32, V32 x) { return hn::Add(x, x); }
};
struct Reciprocal {
  static HWY_INLINE V32 value(F32 d, V32 x) { return hn::Div(hn::Set(d, 1.0f), x); }
  static HWY_INLINE V32 slope(F32 d, V32 x) { return hn::Div(hn::Set(d, -1.0f), hn::Mul(x, x)); }
};

template <class Fn>
HWY_INLINE void visit_kind(UnaryKind kind, float alpha, const Fn& fn) {
  switch (kind) {
    case UnaryKind::kScale:
      return fn(Scale{alpha});
    case UnaryKind::kExp:
      return fn(Exp{});
    case UnaryKind::kLog:
      return fn(Log{});
    case UnaryKind::kSqrt:
      return fn(Sqrt{});
    case UnaryKind::kSquare:
      return fn(Square{});
    case UnaryKind::kReciprocal:
      return fn(Reciprocal{});
    case UnaryKind::kTanh:
      return fn(Tanh{});
    case UnaryKind::kNone:
    case UnaryKind::kRelu:
    case UnaryKind::kGelu:
    case UnaryKind::kGeluTanh:
    case UnaryKind::kSilu:
      return visit_activation(kind, fn);
  }
}

}  // namespace

void unary(const Unary& op, const float* x, float* y, std::int64_t n) {
  visit_kind(op.kind, op.alpha, [&](auto kind) HWY_ATTR {
    transform(n, y, [=](V32 v) HWY_ATTR { return kind.value(F32(), v); }, x);
  });
}

void unary_grad(const UnaryGrad& op, const float* x, const float* dy, float* dx, std::int64_t n) {
  visit_kind(op.kind, op.alpha, [&](auto kind) HWY_ATTR {
    transform(
        n, dx, [=](V32 v, V32 g) HWY_ATTR { return hn::Mul(g, kind.slope(F32(), v)); }, x, dy);
  });
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

std::int64_t workspace_bytes(const Unary&, const ArgShapes&, const Context&) { return 0; }

void run(const Unary& op, const Args& args, const Context& context) noexcept {
  const auto* x = args.inputs[0].as<const float>();
  auto* y = args.outputs[0].as<float>();
  split_elements(context, args.inputs[0].shape.elements(), [&](std::int64_t b, std::int64_t e) {
    VOLTA_SIMD_CALL(context.simd, unary, op, x + b, y + b, e - b);
  });
}

std::int64_t workspace_bytes(const UnaryGrad&, const ArgShapes&, const Context&) { return 0; }

void run(const UnaryGrad& op, const Args& args, const Context& context) noexcept {
  const auto* x = args.inputs[0].as<const float>();
  const auto* dy = args.inputs[1].as<const float>();
  auto* dx = args.outputs[0].as<float>();
  split_elements(context, args.inputs[0].shape.elements(), [&](std::int64_t b, std::int64_t e) {
    VOLTA_SIMD_CALL(context.simd, unary_grad, op, x + b, dy + b, dx + b, e - b);
  });
}

}  // namespace volta::cpu
#endif
