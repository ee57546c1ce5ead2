// Binary: z = x (kind) y, with y repeated along x's leading axes. z may be the memory of x.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/binary.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

struct Plus {
  static HWY_INLINE V32 apply(V32 x, V32 y) { return hn::Add(x, y); }
};
struct Minus {
  static HWY_INLINE V32 apply(V32 x, V32 y) { return hn::Sub(x, y); }
};
struct Times {
  static HWY_INLINE V32 apply(V32 x, V32 y) { return hn::Mul(x, y); }
};
struct Over {
  static HWY_INLINE V32 apply(V32 x, V32 y) { return hn::Div(x, y); }
};

// Elements [begin, end) of x. Element i of y goes with elements i, i + period, ... of x.
template <class Kind>
void apply(const float* x, const float* y, float* z, std::int64_t period, std::int64_t begin,
           std::int64_t end) {
  if (period == 1) {
    const V32 constant = hn::Set(F32(), y[0]);
    return transform(
        end - begin, z + begin, [&](V32 v) HWY_ATTR { return Kind::apply(v, constant); },
        x + begin);
  }
  while (begin < end) {
    const std::int64_t at = begin % period;
    const std::int64_t n = period - at < end - begin ? period - at : end - begin;
    transform(
        n, z + begin, [](V32 a, V32 b) HWY_ATTR { return Kind::apply(a, b); }, x + begin, y + at);
    begin += n;
  }
}

}  // namespace

void binary(BinaryKind kind, const float* x, const float* y, float* z, std::int64_t period,
            std::int64_t begin, std::int64_t end) {
  switch (kind) {
    case BinaryKind::kAdd:
      return apply<Plus>(x, y, z, period, begin, end);
    case BinaryKind::kSub:
      return apply<Minus>(x, y, z, period, begin, end);
    case BinaryKind::kMul:
      return apply<Times>(x, y, z, period, begin, end);
    case BinaryKind::kDiv:
      return apply<Over>(x, y, z, period, begin, end);
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

std::int64_t workspace_bytes(const Binary&, const ArgShapes&, const Context&) { return 0; }

void run(const Binary& op, const Args& args, const Context& context) noexcept {
  const auto* x = args.inputs[0].as<const float>();
  const auto* y = args.inputs[1].as<const float>();
  auto* z = args.outputs[0].as<float>();
  const std::int64_t period = args.inputs[1].shape.elements();
  split_elements(context, args.inputs[0].shape.elements(), [&](std::int64_t b, std::int64_t e) {
    VOLTA_SIMD_CALL(context.simd, binary, op.kind, x, y, z, period, b, e);
  });
}

}  // namespace volta::cpu
#endif
