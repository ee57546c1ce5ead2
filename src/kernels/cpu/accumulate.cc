// Accumulate and Fill: ops that write their first input in place and have no output.
#include <algorithm>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/accumulate.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

void accumulate(float scale, float* target, const float* x, std::int64_t n) {
  const V32 factor = hn::Set(F32(), scale);
  transform(n, target, [&](V32 t, V32 v) HWY_ATTR { return hn::MulAdd(factor, v, t); }, target, x);
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

std::int64_t workspace_bytes(const Accumulate&, const ArgShapes&, const Context&) { return 0; }

void run(const Accumulate& op, const Args& args, const Context& context) noexcept {
  auto* target = args.inputs[0].as<float>();
  const auto* x = args.inputs[1].as<const float>();
  split_elements(context, args.inputs[0].shape.elements(), [&](std::int64_t b, std::int64_t e) {
    VOLTA_SIMD_CALL(context.simd, accumulate, op.scale, target + b, x + b, e - b);
  });
}

std::int64_t workspace_bytes(const Fill&, const ArgShapes&, const Context&) { return 0; }

void run(const Fill& op, const Args& args, const Context& context) noexcept {
  auto* target = args.inputs[0].as<float>();
  split_elements(context, args.inputs[0].shape.elements(), [&](std::int64_t b, std::int64_t e) {
    std::fill(target + b, target + e, op.value);
  });
}

}  // namespace volta::cpu
#endif
