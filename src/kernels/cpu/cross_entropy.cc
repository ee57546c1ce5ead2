// CrossEntropy and its gradient, row by row, in f32. The log-sum-exp is taken around about the
// row's largest logit.
#include <algorithm>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/log_sum_exp-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

// y = factor * softmax(x), given log(sum(exp(x))).
void scaled_softmax(const float* x, float lse, float factor, float* y, std::int64_t n) {
  const F32 d;
  const V32 shift = hn::Set(d, lse);
  const V32 scale = hn::Set(d, factor);
  transform(n, y, [&](V32 v) HWY_ATTR { return hn::Mul(scale, exp(d, hn::Sub(v, shift))); }, x);
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

// The log-sum-exps of this many rows are computed before their targets are looked up. Short rows
// are still in the L1 cache then, and are computed several at a time.
constexpr std::int64_t kRowsAtOnce = 64;

// Whether row `row` has a target. A target beyond the vocabulary is reported and counts as none.
bool has_target(const std::int32_t* targets, std::int64_t row, std::int64_t classes,
                const Context& context) {
  if (targets[row] < 0) return false;
  if (targets[row] < classes) return true;
  report_bad_index(context, row);
  return false;
}

}  // namespace

std::int64_t workspace_bytes(const CrossEntropy&, const ArgShapes&, const Context&) { return 0; }

void run(const CrossEntropy&, const Args& args, const Context& context) noexcept {
  const Shape& shape = args.inputs[0].shape;
  const std::int64_t classes = shape.columns();
  const auto* logits = args.inputs[0].as<const float>();
  const auto* targets = args.inputs[1].as<const std::int32_t>();
  auto* loss = args.outputs[0].as<float>();
  auto* lse = args.outputs[1].as<float>();
  split_rows(context, shape.rows(), classes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin, count = 0; row < end; row += count) {
      count = std::min(end - row, kRowsAtOnce);
      const float* x = logits + row * classes;
      VOLTA_SIMD_CALL(context.simd, log_sum_exp, x, count, classes, (end - row - count) * classes,
                      lse + row);
      for (std::int64_t r = row; r < row + count; ++r, x += classes) {
        loss[r] = has_target(targets, r, classes, context) ? lse[r] - x[targets[r]] : 0.0f;
      }
    }
  });
}

std::int64_t workspace_bytes(const CrossEntropyGrad&, const ArgShapes&, const Context&) {
  return 0;
}

namespace {

// The rows of a part whose log-sum-exps are computed before their gradients, in floats: few enough
// to be in the L2 cache still.
constexpr std::int64_t kFloatsAtOnce = 128 * 1024;

// Both at once. A row's loss holds its log-sum-exp until its gradient is computed, which may
// overwrite its logits.
void run_with_loss(const Args& args, const Context& context) {
  const Shape& shape = args.inputs[0].shape;
  const std::int64_t classes = shape.columns();
  const auto* logits = args.inputs[0].as<const float>();
  const auto* targets = args.inputs[1].as<const std::int32_t>();
  const auto* dloss = args.inputs[2].as<const float>();
  auto* dlogits = args.outputs[0].as<float>();
  auto* loss = args.outputs[1].as<float>();
  const std::int64_t most =
      std::clamp<std::int64_t>(kFloatsAtOnce / std::max<std::int64_t>(classes, 1), 1, kRowsAtOnce);
  split_rows(context, shape.rows(), classes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin, count = 0; row < end; row += count) {
      count = std::min(end - row, most);
      VOLTA_SIMD_CALL(context.simd, log_sum_exp, logits + row * classes, count, classes,
                      (end - row - count) * classes, loss + row);
      for (std::int64_t r = row; r < row + count; ++r) {
        float* dx = dlogits + r * classes;
        if (!has_target(targets, r, classes, context)) {
          std::fill_n(dx, classes, 0.0f);
          loss[r] = 0.0f;
          continue;
        }
        const float lse = loss[r];
        loss[r] = lse - logits[r * classes + targets[r]];
        VOLTA_SIMD_CALL(context.simd, scaled_softmax, logits + r * classes, lse, dloss[r], dx,
                        classes);
        dx[targets[r]] -= dloss[r];
      }
    }
  });
}

}  // namespace

void run(const CrossEntropyGrad& op, const Args& args, const Context& context) noexcept {
  if (op.with_loss) return run_with_loss(args, context);
  const Shape& shape = args.inputs[0].shape;
  const std::int64_t classes = shape.columns();
  const auto* logits = args.inputs[0].as<const float>();
  const auto* targets = args.inputs[1].as<const std::int32_t>();
  const auto* lse = args.inputs[2].as<const float>();
  const auto* dloss = args.inputs[3].as<const float>();
  auto* dlogits = args.outputs[0].as<float>();
  split_rows(context, shape.rows(), classes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      float* dx = dlogits + row * classes;
      if (!has_target(targets, row, classes, context)) {
        std::fill_n(dx, classes, 0.0f);
        continue;
      }
      VOLTA_SIMD_CALL(context.simd, scaled_softmax, logits + row * classes, lse[row], dloss[row],
                      dx, classes);
      dx[targets[row]] -= dloss[row];
    }
  });
}

}  // namespace volta::cpu
#endif
