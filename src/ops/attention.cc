// Attention and AttentionGrad: shapes and gradient.
#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "ops/traits.h"

namespace volta::rules {

namespace {

constexpr std::int32_t kMaxHeads = 1 << 20;  // For heads and head_dim; far above any model.

// Checks q, k, v (or qkv), which come first in both ops; returns the spec of y.
Result<TensorSpec> check_sequences(const Check& check, const AttentionShape& shape, Specs inputs) {
  const TensorSpec& first = inputs[0];
  VOLTA_TRY(check.floating(0, shape.packed ? "qkv" : "q"));
  VOLTA_TRY(check.that(first.shape.rank() == 3, "inputs [batch, time, width]"));
  const AttentionWidths width = attention_widths(shape);
  TensorSpec spec = first;
  spec.shape.set(-1, shape.packed ? width.packed : width.q);
  VOLTA_TRY(check.is(0, shape.packed ? "qkv" : "q", spec));
  if (!shape.packed) {
    spec.shape.set(-1, width.kv);
    VOLTA_TRY(check.is(1, "k", spec));
    VOLTA_TRY(check.is(2, "v", spec));
  }
  spec.shape.set(-1, width.q);
  return spec;
}

TensorSpec lse_spec(const AttentionShape& shape, const TensorSpec& y) {
  return {DType::kF32, Shape(y.shape[0], shape.heads, y.shape[1])};
}

// The number of (query, key) pairs of one head over `time` rows: the whole matrix, its causal half,
// or the part of that half inside the window.
double visible_pairs(const AttentionShape& shape, std::int64_t time) {
  const double t = static_cast<double>(time);
  if (!shape.causal) return t * t;
  const double w = shape.window > 0 ? std::min(t, static_cast<double>(shape.window)) : t;
  return w * (w + 1) / 2 + (t - w) * w;
}

// A pair costs `products` dot products of head_dim elements, one element of a softmax, and the soft
// cap if there is one.
double attention_flops(const AttentionShape& shape, const TensorSpec& q, double products) {
  const double pairs = static_cast<double>(q.shape[0]) * static_cast<double>(shape.heads) *
                       visible_pairs(shape, q.shape[1]);
  const double functions = shape.softcap > 0.0f ? 2 * kNonlinear : kNonlinear;
  return pairs * (products * 2 * static_cast<double>(shape.head_dim) + functions);
}

}  // namespace

Status check_attention_shape(const Check& check, const AttentionShape& shape) {
  const auto sane = [](std::int32_t value) { return value >= 1 && value <= kMaxHeads; };
  VOLTA_TRY(check.that(sane(shape.heads) && sane(shape.kv_heads) && sane(shape.head_dim),
                       "heads, kv_heads and head_dim from 1 to 2^20"));
  VOLTA_TRY(check.that(shape.heads % shape.kv_heads == 0, "heads to be a multiple of kv_heads"));
  VOLTA_TRY(check.that(shape.window >= 0, "a window of at least 0"));
  VOLTA_TRY(check.that(shape.causal || shape.window == 0, "causal attention if there is a window"));
  VOLTA_TRY(check.that(std::isfinite(shape.softcap) && shape.softcap >= 0.0f,
                       "a finite softcap of at least 0"));
  return check.finite(shape.scale, "scale");
}

AttentionWidths attention_widths(const AttentionShape& shape) {
  const std::int64_t q = std::int64_t{shape.heads} * shape.head_dim;
  const std::int64_t kv = std::int64_t{shape.kv_heads} * shape.head_dim;
  return {q, kv, q + 2 * kv};
}

Result<SpecList> infer(const Attention& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check_attention_shape(check, op.shape));
  VOLTA_TRY(check.fraction(op.dropout, "dropout"));
  const bool has_rng = op.dropout > 0.0f;
  const std::size_t count = (op.shape.packed ? 1u : 3u) + (has_rng ? 1u : 0u);
  VOLTA_TRY(check.count(count, "qkv if packed, else q, k, v; rng with dropout"));
  VOLTA_TRY(const TensorSpec y, check_sequences(check, op.shape, inputs));
  if (has_rng) VOLTA_TRY(check.is(count - 1, "rng", kRngSpec));
  return SpecList{y, lse_spec(op.shape, y)};
}

Result<Gradients> gradient(const Attention& op, const GradientContext& context) {
  if (context.output_grads[1].valid()) return output_not_differentiable(op, "lse");
  const std::size_t sequences = op.shape.packed ? 1 : 3;
  const auto first = context.inputs.first(sequences);
  std::vector<ValueId> operands(first.begin(), first.end());
  operands.insert(operands.end(),
                  {context.outputs[0], context.outputs[1], context.output_grads[0]});
  if (op.dropout > 0.0f) operands.push_back(context.inputs[sequences]);
  VOLTA_TRY(auto results,
            context.graph.add(AttentionGrad{op.shape, op.dropout, op.stream}, operands));
  Gradients grads = no_gradients(context);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (context.wanted[i]) grads[i] = results[i];
  }
  return grads;
}

OpTypes types(const Attention& op) {
  return {.activations = op.shape.packed ? 0b1u : 0b111u, .any = 0, .results = 0b1};
}

OpEffects effects(const Attention&) { return kPure; }

// The two products are q k^T and p v.
OpCost cost(const Attention& op, Specs inputs, Specs outputs) {
  return estimate(attention_flops(op.shape, inputs[0], 2),
                  bytes_moved(effects(op), inputs, outputs));
}

Result<SpecList> infer(const AttentionGrad& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check_attention_shape(check, op.shape));
  VOLTA_TRY(check.fraction(op.dropout, "dropout"));
  const bool has_rng = op.dropout > 0.0f;
  const std::size_t sequences = op.shape.packed ? 1 : 3;
  VOLTA_TRY(check.count(sequences + (has_rng ? 4u : 3u),
                        "qkv if packed, else q, k, v; y, lse, dy; rng with dropout"));
  VOLTA_TRY(const TensorSpec y, check_sequences(check, op.shape, inputs));
  VOLTA_TRY(check.is(sequences, "y", y));
  VOLTA_TRY(check.is(sequences + 1, "lse", lse_spec(op.shape, y)));
  VOLTA_TRY(check.is(sequences + 2, "dy", y));
  if (has_rng) VOLTA_TRY(check.is(sequences + 3, "rng", kRngSpec));
  const Specs like = inputs.first(sequences);
  return SpecList(like.begin(), like.end());
}

Result<Gradients> gradient(const AttentionGrad& op, const GradientContext&) {
  return not_differentiable(op, "it is a backward op");
}

OpTypes types(const AttentionGrad& op) {
  return {.activations = op.shape.packed ? 0b1011u : 0b101111u, .any = 0, .results = 0b111};
}

OpEffects effects(const AttentionGrad&) { return kPure; }

// The five products are q k^T, again, and those for dv, dp, dq and dk.
OpCost cost(const AttentionGrad& op, Specs inputs, Specs outputs) {
  return estimate(attention_flops(op.shape, inputs[0], 5),
                  bytes_moved(effects(op), inputs, outputs));
}

}  // namespace volta::rules
