// Softmax and SoftmaxGrad, row by row, in f32. The output may be the memory of an input.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

void softmax_rows(float scale, const float* x, float* y, std::int64_t columns, std::int64_t rows) {
  const F32 d;
  const V32 factor = hn::Set(d, scale);
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    const auto scaled = [&](V32 v) HWY_ATTR { return hn::Mul(factor, v); };
    const V32 top = hn::Set(d, max_of_numbers(columns, scaled, x));
    const float total = sum_each(columns, [&](std::int64_t i, auto extent) HWY_ATTR {
      const V32 weight = exp_of_bounded(d, hn::Sub(scaled(load(d, x + i, extent)), top));
      store(d, weight, y + i, extent);
      return weight;
    });
    const V32 inverse = hn::Set(d, 1.0f / total);
    transform(columns, y, [&](V32 v) HWY_ATTR { return hn::Mul(v, inverse); }, y);
  }
}

void softmax_grad_rows(float scale, const float* y, const float* dy, float* dx,
                       std::int64_t columns, std::int64_t rows) {
  const F32 d;
  const V32 factor = hn::Set(d, scale);
  for (std::int64_t row = 0; row < rows; ++row, y += columns, dy += columns, dx += columns) {
    const V32 dot =
        hn::Set(d, sum(columns, [](V32 a, V32 b) HWY_ATTR { return hn::Mul(a, b); }, y, dy));
    transform(
        columns, dx,
        [&](V32 p, V32 g) HWY_ATTR { return hn::Mul(hn::Mul(factor, p), hn::Sub(g, dot)); }, y, dy);
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

std::int64_t workspace_bytes(const Softmax&, const ArgShapes&, const Context&) { return 0; }

void run(const Softmax& op, const Args& args, const Context& context) noexcept {
  const std::int64_t columns = args.inputs[0].shape.columns();
  const auto* x = args.inputs[0].as<const float>();
  auto* y = args.outputs[0].as<float>();
  split_rows(context, args.inputs[0].shape.rows(), columns, [&](std::int64_t b, std::int64_t e) {
    VOLTA_SIMD_CALL(context.simd, softmax_rows, op.scale, x + b * columns, y + b * columns, columns,
                    e - b);
  });
}

std::int64_t workspace_bytes(const SoftmaxGrad&, const ArgShapes&, const Context&) { return 0; }

void run(const SoftmaxGrad& op, const Args& args, const Context& context) noexcept {
  const std::int64_t columns = args.inputs[0].shape.columns();
  const auto* y = args.inputs[0].as<const float>();
  const auto* dy = args.inputs[1].as<const float>();
  auto* dx = args.outputs[0].as<float>();
  split_rows(context, args.inputs[0].shape.rows(), columns, [&](std::int64_t b, std::int64_t e) {
    VOLTA_SIMD_CALL(context.simd, softmax_grad_rows, op.scale, y + b * columns, dy + b * columns,
                    dx + b * columns, columns, e - b);
  });
}

}  // namespace volta::cpu
#endif
