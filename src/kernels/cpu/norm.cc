// Norm and NormGrad: layer norm and RMS norm, row by row, in f32. Sums within a row have a fixed
// order of lanes; the sums over rows that the weight's gradient needs are taken over fixed blocks
// of rows, then over the blocks in order.
#include <algorithm>
#include <cmath>

#include "base/arithmetic.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace volta::cpu::HWY_NAMESPACE {
namespace {

// stats[0] = mean (0 for kRms), stats[1] = 1 / sqrt(variance + eps). A second pass takes the
// variance around the mean, which loses no precision if the mean is large. Meanwhile the row at
// `next` is prefetched.
void row_stats(const Norm& op, const float* x, const float* next, std::int64_t columns,
               float* stats) {
  const auto count = static_cast<float>(columns);
  float mean = 0.0f;
  if (op.kind == NormKind::kLayer) {
    mean = sum(columns, [](V32 v) HWY_ATTR { return v; }, x) / count;
  }
  const F32 d;
  const V32 center = hn::Set(d, mean);
  const float squares = sum_each(columns, [&](std::int64_t i, auto extent) HWY_ATTR {
    if (i % 16 == 0) __builtin_prefetch(next + i);
    const V32 delta = hn::Sub(load(d, x + i, extent), center);
    return hn::Mul(delta, delta);
  });
  stats[0] = mean;
  stats[1] = 1.0f / std::sqrt(squares / count + op.eps);
}

// `bias` is null if there is none. Weight and bias may differ in type.
template <typename W, typename B>
void norm_rows(const Norm& op, const Args& args, const W* weight, const B* bias, std::int64_t begin,
               std::int64_t end) {
  const std::int64_t columns = args.inputs[0].shape.columns();
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = args.inputs[0].as<const float>() + row * columns;
    float* y = args.outputs[0].as<float>() + row * columns;
    float* stats = args.outputs[1].as<float>() + row * 2;
    row_stats(op, x, row + 1 < end ? x + columns : x, columns, stats);
    const V32 mean = hn::Set(F32(), stats[0]);
    const V32 rstd = hn::Set(F32(), stats[1]);
    if (bias != nullptr) {
      transform(
          columns, y,
          [&](V32 v, V32 w, V32 b)
              HWY_ATTR { return hn::MulAdd(hn::Mul(hn::Sub(v, mean), rstd), w, b); },
          x, weight, bias);
    } else if (op.plus_one) {
      const V32 one = hn::Set(F32(), 1.0f);
      transform(
          columns, y,
          [&](V32 v, V32 w)
              HWY_ATTR { return hn::Mul(hn::Mul(hn::Sub(v, mean), rstd), hn::Add(one, w)); },
          x, weight);
    } else {
      transform(
          columns, y,
          [&](V32 v, V32 w) HWY_ATTR { return hn::Mul(hn::Mul(hn::Sub(v, mean), rstd), w); }, x,
          weight);
    }
  }
}

// One row: computes dx, and adds the row's share to dweight and dbias (null if there is no bias).
//   h = (x - mean) rstd, g = dy weight:  dx = rstd (g - mean(g) - h mean(g h)),
//   dweight = sum over rows of dy h, dbias = sum over rows of dy; without mean(g) for kRms.
// With kPlusOne `weight` above is 1 + weight.
template <bool kPlusOne, typename T>
void grad_row(NormKind kind, const float* x, const T* weight, const float* stats, const float* dy,
              float* dx, float* dweight, float* dbias, std::int64_t columns) {
  const F32 d;
  const V32 mean = hn::Set(d, stats[0]);
  const V32 rstd = hn::Set(d, stats[1]);
  const auto factor = [&](V32 w) HWY_ATTR {
    if constexpr (kPlusOne) return hn::Add(hn::Set(F32(), 1.0f), w);
    return w;
  };
  V32 sum_g = hn::Zero(d);
  V32 sum_gh = hn::Zero(d);
  for_each_vector(columns, [&](std::int64_t i, auto extent) HWY_ATTR {
    const V32 h = hn::Mul(hn::Sub(load(d, x + i, extent), mean), rstd);
    const V32 upstream = load(d, dy + i, extent);  // 0 after the end, as are its products.
    const V32 g = hn::Mul(upstream, factor(load(d, weight + i, extent)));
    sum_g = hn::Add(sum_g, g);
    sum_gh = hn::MulAdd(g, h, sum_gh);
    store(d, hn::MulAdd(upstream, h, load(d, dweight + i, extent)), dweight + i, extent);
    if (dbias == nullptr) return;
    store(d, hn::Add(upstream, load(d, dbias + i, extent)), dbias + i, extent);
  });
  const V32 count = hn::Set(d, static_cast<float>(columns));
  const V32 mean_gh = hn::Div(hn::SumOfLanes(d, sum_gh), count);
  const V32 mean_g =
      kind == NormKind::kLayer ? hn::Div(hn::SumOfLanes(d, sum_g), count) : hn::Zero(d);
  transform(
      columns, dx,
      [&](V32 v, V32 w, V32 upstream) HWY_ATTR {
        const V32 h = hn::Mul(hn::Sub(v, mean), rstd);
        const V32 centered = hn::Sub(hn::Mul(upstream, factor(w)), mean_g);
        return hn::Mul(rstd, hn::NegMulAdd(h, mean_gh, centered));
      },
      x, weight, dy);
}

}  // namespace

void norm(const Norm& op, const Args& args, std::int64_t begin, std::int64_t end) {
  visit_float(args.inputs[1].dtype, [&](auto w) HWY_ATTR {
    const auto* weight = args.inputs[1].as<const decltype(w)>();
    if (!op.has_bias) {
      return norm_rows(op, args, weight, static_cast<const float*>(nullptr), begin, end);
    }
    visit_float(args.inputs[2].dtype, [&](auto b) HWY_ATTR {
      norm_rows(op, args, weight, args.inputs[2].as<const decltype(b)>(), begin, end);
    });
  });
}

// Rows [begin, end): computes dx, and the rows' sums at dweight and dbias (null if there is no
// bias).
void norm_grad(const NormGrad& op, const Args& args, std::int64_t begin, std::int64_t end,
               float* dweight, float* dbias) {
  const std::int64_t columns = args.inputs[0].shape.columns();
  for (std::int64_t c = 0; c < columns; ++c) dweight[c] = 0.0f;
  for (std::int64_t c = 0; dbias != nullptr && c < columns; ++c) dbias[c] = 0.0f;
  visit_float(args.inputs[1].dtype, [&](auto element) HWY_ATTR {
    const auto* weight = args.inputs[1].as<const decltype(element)>();
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = args.inputs[0].as<const float>() + row * columns;
      const float* stats = args.inputs[2].as<const float>() + row * 2;
      const float* dy = args.inputs[3].as<const float>() + row * columns;
      float* dx = args.outputs[0].as<float>() + row * columns;
      if (op.plus_one) {
        grad_row<true>(op.kind, x, weight, stats, dy, dx, dweight, dbias, columns);
      } else {
        grad_row<false>(op.kind, x, weight, stats, dy, dx, dweight, dbias, columns);
      }
    }
  });
}

void combine_norm_grad(const float* partial, std::int64_t stride, std::int64_t blocks, float* sums,
                       std::int64_t columns) {
  sum_columns(partial, stride, blocks, sums, columns);
}

}  // namespace volta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace volta::cpu {
namespace {

constexpr std::int64_t kBlockRows = 32;

// At least one, so that sums over no rows are zero.
std::int64_t block_count(const View& x) {
  return std::max<std::int64_t>(1, ceil_div(x.shape.rows(), kBlockRows));
}

// Floats of one block's sums: dweight, then dbias.
std::int64_t partial_floats(const NormGrad& op, const View& x) {
  return x.shape.columns() * (op.has_bias ? 2 : 1);
}

}  // namespace

std::int64_t workspace_bytes(const Norm&, const ArgShapes&, const Context&) { return 0; }

void run(const Norm& op, const Args& args, const Context& context) noexcept {
  const Shape& shape = args.inputs[0].shape;
  split_rows(context, shape.rows(), shape.columns(), [&](std::int64_t begin, std::int64_t end) {
    VOLTA_SIMD_CALL(context.simd, norm, op, args, begin, end);
  });
}

std::int64_t workspace_bytes(const NormGrad& op, const ArgShapes& shapes, const Context&) {
  const View& x = shapes.inputs[0];
  return block_count(x) * partial_floats(op, x) * std::int64_t{sizeof(float)};
}

void run(const NormGrad& op, const Args& args, const Context& context) noexcept {
  const Shape& shape = args.inputs[0].shape;
  const std::int64_t rows = shape.rows();
  const std::int64_t columns = shape.columns();
  const std::int64_t blocks = block_count(args.inputs[0]);
  const std::int64_t stride = partial_floats(op, args.inputs[0]);
  // SAFETY: workspace_bytes asked for blocks * stride floats, and workspaces are 64-byte aligned.
  auto* partial = reinterpret_cast<float*>(args.workspace.data());
  split_rows(context, blocks, kBlockRows * columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      float* dweight = partial + block * stride;
      float* dbias = op.has_bias ? dweight + columns : nullptr;
      VOLTA_SIMD_CALL(context.simd, norm_grad, op, args, block * kBlockRows,
                      std::min(rows, (block + 1) * kBlockRows), dweight, dbias);
    }
  });
  split_columns(context, columns, blocks, [&](std::int64_t begin, std::int64_t end) {
    VOLTA_SIMD_CALL(context.simd, combine_norm_grad, partial + begin, stride, blocks,
                    args.outputs[1].as<float>() + begin, end - begin);
    if (!op.has_bias) return;
    VOLTA_SIMD_CALL(context.simd, combine_norm_grad, partial + columns + begin, stride, blocks,
                    args.outputs[2].as<float>() + begin, end - begin);
  });
}

}  // namespace volta::cpu
#endif
