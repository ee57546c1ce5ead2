// Dropout: the mask is computed again from (seed, stream, step, element) whenever it is needed. It
// is the same on every instruction set and for any number of threads. The output may be the memory
// of x.
#include "kernels/cpu/dropout.h"

#include <algorithm>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/dropout-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

// Elements [begin, end). The factors, 0 or 1 / (1 - p), are computed one tile at a time.
void dropout(const DropoutRule& rule, const float* x, float* y, std::int64_t begin,
             std::int64_t end) {
  constexpr std::int64_t kTile = 128;
  alignas(64) float buffer[kTile + kDropoutSlack];
  for (; begin < end; begin += kTile) {
    const std::int64_t n = end - begin < kTile ? end - begin : kTile;
    const float* factors = dropout_factors<2>(rule, static_cast<std::uint64_t>(begin), n, buffer);
    transform(
        n, y + begin, [](V32 v, V32 factor) HWY_ATTR { return hn::Mul(v, factor); }, x + begin,
        factors);
  }
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {

std::int64_t workspace_bytes(const Dropout&, const ArgShapes&, const Context&) { return 0; }

void run(const Dropout& op, const Args& args, const Context& context) noexcept {
  const auto* x = args.inputs[0].as<const float>();
  auto* y = args.outputs[0].as<float>();
  const auto rule = dropout_rule(op.p, op.stream, args.inputs[1]);
  const std::int64_t elements = args.inputs[0].shape.elements();
  split_elements(context, elements, [&](std::int64_t begin, std::int64_t end) {
    if (rule.on) {
      VOLTA_SIMD_CALL(context.simd, dropout, rule, x, y, begin, end);
    } else if (x != y) {
      std::copy(x + begin, x + end, y + begin);
    }
  });
}

}  // namespace volta::cpu
#endif
