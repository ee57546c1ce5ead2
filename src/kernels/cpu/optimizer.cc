// AdamW and Sgd: one pass over a parameter, its gradient and its state, in place. Nothing is
// changed if the step's gradients were not finite.
#include <cmath>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

// Numbers that are the same for all elements of a step, computed once in f64.
#ifndef VOLTA_KERNELS_CPU_OPTIMIZER_STEPS
#define VOLTA_KERNELS_CPU_OPTIMIZER_STEPS
namespace volta::cpu {

struct AdamWStep {
  float factor;           // Of the gradient, from clipping.
  float decay;            // 1 - lr weight_decay
  float m_rate;           // 1 - beta1
  float beta2, v_rate;    // v_rate = 1 - beta2
  float step;             // lr / (1 - beta1^t)
  float root_correction;  // sqrt(1 - beta2^t)
  float eps;
};

struct SgdStep {
  float factor;
  float momentum;
  float weight_decay;
  float lr;
};

}  // namespace volta::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

// Computes in the order of PyTorch's AdamW, so that a run can be compared with it step by step.
void adamw(const AdamWStep& step, float* param, const float* grad, float* m, float* v,
           std::int64_t n) {
  const F32 d;
  const V32 factor = hn::Set(d, step.factor), decay = hn::Set(d, step.decay);
  const V32 m_rate = hn::Set(d, step.m_rate), v_rate = hn::Set(d, step.v_rate);
  const V32 beta2 = hn::Set(d, step.beta2), size = hn::Set(d, step.step);
  const V32 root_correction = hn::Set(d, step.root_correction), eps = hn::Set(d, step.eps);
  for_each_vector(n, [&](std::int64_t i, auto extent) HWY_ATTR {
    const V32 g = hn::Mul(factor, load(d, grad + i, extent));
    const V32 old_m = load(d, m + i, extent);
    const V32 new_m = hn::MulAdd(hn::Sub(g, old_m), m_rate, old_m);
    const V32 new_v = hn::MulAdd(hn::Mul(v_rate, g), g, hn::Mul(beta2, load(d, v + i, extent)));
    const V32 root = hn::Add(hn::Div(hn::Sqrt(new_v), root_correction), eps);
    const V32 decayed = hn::Mul(decay, load(d, param + i, extent));
    store(d, new_m, m + i, extent);
    store(d, new_v, v + i, extent);
    store(d, hn::Sub(decayed, hn::Div(hn::Mul(size, new_m), root)), param + i, extent);
  });
}

// Without momentum `velocity` is null and is not updated.
void sgd(const SgdStep& step, float* param, const float* grad, float* velocity, std::int64_t n) {
  const F32 d;
  const V32 factor = hn::Set(d, step.factor), momentum = hn::Set(d, step.momentum);
  const V32 weight_decay = hn::Set(d, step.weight_decay), lr = hn::Set(d, step.lr);
  for_each_vector(n, [&](std::int64_t i, auto extent) HWY_ATTR {
    const V32 p = load(d, param + i, extent);
    V32 change = hn::MulAdd(weight_decay, p, hn::Mul(factor, load(d, grad + i, extent)));
    if (velocity != nullptr) {
      change = hn::MulAdd(momentum, load(d, velocity + i, extent), change);
      store(d, change, velocity + i, extent);
    }
    store(d, hn::NegMulAdd(lr, change, p), param + i, extent);
  });
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

// The last two inputs of every optimiser.
struct Schedule {
  double lr, m_correction, v_correction;  // 1 - beta1^t, 1 - beta2^t
  float factor;                           // GlobalNorm's
  bool finite;
};

Schedule read_schedule(const View& schedule, const View& stats) {
  const auto* s = schedule.as<const float>();
  const auto* norm = stats.as<const float>();
  return {s[0], s[1], s[2], norm[1], norm[2] != 0.0f};
}

}  // namespace

std::int64_t workspace_bytes(const AdamW&, const ArgShapes&, const Context&) { return 0; }

void run(const AdamW& op, const Args& args, const Context& context) noexcept {
  const Schedule schedule = read_schedule(args.inputs[4], args.inputs[5]);
  if (!schedule.finite) return;
  const double beta1 = op.beta1, beta2 = op.beta2, weight_decay = op.weight_decay;
  const AdamWStep step = {
      .factor = schedule.factor,
      .decay = static_cast<float>(1.0 - schedule.lr * weight_decay),
      .m_rate = static_cast<float>(1.0 - beta1),
      .beta2 = op.beta2,
      .v_rate = static_cast<float>(1.0 - beta2),
      .step = static_cast<float>(schedule.lr / schedule.m_correction),
      .root_correction = static_cast<float>(std::sqrt(schedule.v_correction)),
      .eps = op.eps,
  };
  auto* param = args.inputs[0].as<float>();
  const auto* grad = args.inputs[1].as<const float>();
  auto* m = args.inputs[2].as<float>();
  auto* v = args.inputs[3].as<float>();
  split_elements(context, args.inputs[0].shape.elements(), [&](std::int64_t b, std::int64_t e) {
    VOLTA_SIMD_CALL(context.simd, adamw, step, param + b, grad + b, m + b, v + b, e - b);
  });
}

std::int64_t workspace_bytes(const Sgd&, const ArgShapes&, const Context&) { return 0; }

void run(const Sgd& op, const Args& args, const Context& context) noexcept {
  const std::size_t last = args.inputs.size() - 1;
  const Schedule schedule = read_schedule(args.inputs[last - 1], args.inputs[last]);
  if (!schedule.finite) return;
  const SgdStep step = {schedule.factor, op.momentum, op.weight_decay,
                        static_cast<float>(schedule.lr)};
  auto* param = args.inputs[0].as<float>();
  const auto* grad = args.inputs[1].as<const float>();
  auto* velocity = args.inputs.size() == 5 ? args.inputs[2].as<float>() : nullptr;
  split_elements(context, args.inputs[0].shape.elements(), [&](std::int64_t b, std::int64_t e) {
    VOLTA_SIMD_CALL(context.simd, sgd, step, param + b, grad + b,
                    velocity == nullptr ? nullptr : velocity + b, e - b);
  });
}

}  // namespace volta::cpu
#endif
