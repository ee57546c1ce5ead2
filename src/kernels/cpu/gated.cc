// GatedUnit and GatedUnitGrad: activation(gate) * up, element by element. Outputs may be the memory
// of inputs.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gated.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

template <class Kind>
void grad(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
          std::int64_t n) {
  const F32 d;
  for_each_vector(n, [&](std::int64_t i, auto extent) HWY_ATTR {
    const V32 g = load(d, gate + i, extent);
    const V32 u = load(d, up + i, extent);
    const V32 upstream = load(d, dy + i, extent);
    store(d, hn::Mul(hn::Mul(upstream, u), Kind::slope(d, g)), dgate + i, extent);
    store(d, hn::Mul(upstream, Kind::value(d, g)), dup + i, extent);
  });
}

}  // namespace

void gated(Activation activation, const float* gate, const float* up, float* y, std::int64_t n) {
  visit_activation(activation, [&](auto kind) HWY_ATTR {
    transform(
        n, y, [](V32 g, V32 u) HWY_ATTR { return hn::Mul(decltype(kind)::value(F32(), g), u); },
        gate, up);
  });
}

void gated_grad(Activation activation, const float* gate, const float* up, const float* dy,
                float* dgate, float* dup, std::int64_t n) {
  visit_activation(activation,
                   [&](auto kind) HWY_ATTR { grad<decltype(kind)>(gate, up, dy, dgate, dup, n); });
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

std::int64_t workspace_bytes(const GatedUnit&, const ArgShapes&, const Context&) { return 0; }

void run(const GatedUnit& op, const Args& args, const Context& context) noexcept {
  const auto* gate = args.inputs[0].as<const float>();
  const auto* up = args.inputs[1].as<const float>();
  auto* y = args.outputs[0].as<float>();
  split_elements(context, args.inputs[0].shape.elements(), [&](std::int64_t b, std::int64_t e) {
    VOLTA_SIMD_CALL(context.simd, gated, op.activation, gate + b, up + b, y + b, e - b);
  });
}

std::int64_t workspace_bytes(const GatedUnitGrad&, const ArgShapes&, const Context&) { return 0; }

void run(const GatedUnitGrad& op, const Args& args, const Context& context) noexcept {
  const auto* gate = args.inputs[0].as<const float>();
  const auto* up = args.inputs[1].as<const float>();
  const auto* dy = args.inputs[2].as<const float>();
  auto* dgate = args.outputs[0].as<float>();
  auto* dup = args.outputs[1].as<float>();
  split_elements(context, args.inputs[0].shape.elements(), [&](std::int64_t b, std::int64_t e) {
    VOLTA_SIMD_CALL(context.simd, gated_grad, op.activation, gate + b, up + b, dy + b, dgate + b,
                    dup + b, e - b);
  });
}

}  // namespace volta::cpu
#endif
