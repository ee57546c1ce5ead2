// GlobalNorm: one norm over any number of gradients. Squares are summed in f64 over fixed chunks of
// each gradient, and then over the chunks in order. A sum of squares of finite f32 values is finite
// in f64, so the norm tells whether all values were finite and whether the norm fits f32.
#include <algorithm>
#include <cmath>

#include "base/arithmetic.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/global_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {

double sum_of_squares(const float* x, std::int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;  // As many floats as a vector has doubles.
  auto a = hn::Zero(d), b = a, c = a, e = a;
  const auto squares = [&](std::int64_t i, auto sum) HWY_ATTR {
    const auto v = hn::PromoteTo(d, load(half, x + i));
    return hn::MulAdd(v, v, sum);
  };
  std::int64_t i = 0;
  for (; i + 4 * lanes(d) <= n; i += 4 * lanes(d)) {
    a = squares(i, a);
    b = squares(i + lanes(d), b);
    c = squares(i + 2 * lanes(d), c);
    e = squares(i + 3 * lanes(d), e);
  }
  double rest = 0.0;
  for (; i < n; ++i) rest += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return rest + hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

constexpr std::int64_t kChunk = 8 * 1024;

std::int64_t chunks_of(const View& gradient) { return ceil_div(gradient.shape.elements(), kChunk); }

// All gradients; input 0 is the loss.
std::int64_t chunk_count(std::span<const View> inputs) {
  std::int64_t chunks = 0;
  for (const View& gradient : inputs.subspan(1)) chunks += chunks_of(gradient);
  return chunks;
}

}  // namespace

std::int64_t workspace_bytes(const GlobalNorm&, const ArgShapes& shapes, const Context&) {
  return chunk_count(shapes.inputs) * std::int64_t{sizeof(double)};
}

void run(const GlobalNorm& op, const Args& args, const Context& context) noexcept {
  // SAFETY: workspace_bytes asked for a double a chunk, and workspaces are 64-byte aligned.
  auto* partial = reinterpret_cast<double*>(args.workspace.data());
  const std::int64_t chunks = chunk_count(args.inputs);
  split_rows(context, chunks, kChunk, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t first = 0;  // The number of this gradient's first chunk.
    for (const View& gradient : args.inputs.subspan(1)) {
      const std::int64_t stop = first + chunks_of(gradient);
      for (std::int64_t c = std::max(first, begin); c < std::min(stop, end); ++c) {
        const std::int64_t at = (c - first) * kChunk;
        partial[c] = VOLTA_SIMD_CALL(context.simd, sum_of_squares, gradient.as<const float>() + at,
                                     std::min(kChunk, gradient.shape.elements() - at));
      }
      first = stop;
    }
  });
  double squares = 0.0;
  for (std::int64_t c = 0; c < chunks; ++c) squares += partial[c];
  const double norm = std::sqrt(squares);
  const float loss = args.inputs[0].as<const float>()[0];
  auto* stats = args.outputs[0].as<float>();
  stats[0] = static_cast<float>(norm);
  stats[1] = 1.0f;
  if (op.max_norm > 0.0f) {
    stats[1] = static_cast<float>(std::min(1.0, static_cast<double>(op.max_norm) / (norm + 1e-6)));
  }
  // A norm beyond f32 is infinite; an update with such gradients would be useless.
  stats[2] = std::isfinite(stats[0]) && std::isfinite(loss) ? 1.0f : 0.0f;
}

}  // namespace volta::cpu
#endif
