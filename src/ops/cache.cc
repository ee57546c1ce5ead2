// Attention over a key/value cache: KvAppend and CachedAttention.
#include <algorithm>

#include "ops/attention.h"
#include "ops/traits.h"

namespace volta::rules {

namespace {

// cache_k, cache_v, start, count, which follow the `sequences` new rows in both ops.
Status check_cache(const Check& check, const AttentionShape& shape, Specs inputs,
                   std::size_t sequences) {
  const TensorSpec& keys = inputs[sequences];
  const std::int64_t slots = inputs[0].shape[0];
  const std::int64_t positions = keys.shape[2] * kAttentionKeyBlock;
  VOLTA_TRY(check.floating(sequences, "cache_k"));
  VOLTA_TRY(
      check.that(keys.shape == key_cache_shape(slots, shape.kv_heads, positions, shape.head_dim),
                 "cache_k [sequences, kv_heads, blocks of 64 positions, head_dim, 64]"));
  if (shape.ring) {
    VOLTA_TRY(check.that(shape.window > 0 && positions >= shape.window + inputs[0].shape[1] - 1,
                         "with a ring: a window, and a cache that holds it and the new rows"));
  }
  VOLTA_TRY(
      check.is(sequences + 1, "cache_v",
               {keys.dtype, value_cache_shape(slots, shape.kv_heads, positions, shape.head_dim)}));
  VOLTA_TRY(check.is(sequences + 2, "start", {DType::kI32, Shape(slots)}));
  return check.is(sequences + 3, "count", {DType::kI32, Shape(slots)});
}

// Input i is t[S, C, width] with t, S and C of input 0.
Status check_rows(const Check& check, Specs inputs, std::size_t i, std::string_view name,
                  std::int64_t width) {
  const TensorSpec& first = inputs[0];
  VOLTA_TRY(check.floating(0, "rows"));
  VOLTA_TRY(check.that(first.shape.rank() == 3, "rows [sequences, rows, width]"));
  return check.is(i, name, {first.dtype, Shape(first.shape[0], first.shape[1], width)});
}

}  // namespace

Result<SpecList> infer(const KvAppend& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check_attention_shape(check, op.shape));
  const AttentionWidths width = attention_widths(op.shape);
  const std::size_t sequences = op.shape.packed ? 1 : 2;
  VOLTA_TRY(check.count(sequences + 4, "qkv if packed, else k, v; cache_k, cache_v, start, count"));
  if (op.shape.packed) {
    VOLTA_TRY(check_rows(check, inputs, 0, "qkv", width.packed));
  } else {
    VOLTA_TRY(check_rows(check, inputs, 0, "k", width.kv));
    VOLTA_TRY(check_rows(check, inputs, 1, "v", width.kv));
  }
  VOLTA_TRY(check_cache(check, op.shape, inputs, sequences));
  return SpecList{};
}

Result<Gradients> gradient(const KvAppend& op, const GradientContext&) {
  return not_differentiable(op, "it writes a cache");
}

OpTypes types(const KvAppend& op) {
  return {.activations = op.shape.packed ? 0b1u : 0b11u,
          .any = op.shape.packed ? 0b110u : 0b1100u,
          .results = 0};
}

// cache_k and cache_v, after qkv or k and v.
OpEffects effects(const KvAppend& op) {
  return {.writes = op.shape.packed ? 0b0110u : 0b1100u, .overwrites = 0};
}

// The new rows once in and once out.
OpCost cost(const KvAppend& op, Specs inputs, Specs) {
  const Specs rows = inputs.first(op.shape.packed ? 1 : 2);
  const double kv = 2.0 * static_cast<double>(inputs[0].shape.rows()) *
                    static_cast<double>(op.shape.kv_heads) * static_cast<double>(op.shape.head_dim);
  return estimate(
      0, total_bytes(rows) + kv * static_cast<double>(dtype_size(inputs[rows.size()].dtype)));
}

Result<SpecList> infer(const CachedAttention& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check_attention_shape(check, op.shape));
  const AttentionWidths width = attention_widths(op.shape);
  VOLTA_TRY(check.count(5, "qkv if packed, else q; cache_k, cache_v, start, count"));
  VOLTA_TRY(op.shape.packed ? check_rows(check, inputs, 0, "qkv", width.packed)
                            : check_rows(check, inputs, 0, "q", width.q));
  VOLTA_TRY(check_cache(check, op.shape, inputs, 1));
  TensorSpec y = inputs[0];
  y.shape.set(-1, width.q);
  return SpecList{y};
}

Result<Gradients> gradient(const CachedAttention& op, const GradientContext&) {
  return not_differentiable(op,
                            "attention over a cache belongs to inference; train with Attention");
}

OpTypes types(const CachedAttention&) { return {.activations = 0b1, .any = 0b110, .results = 0b1}; }

OpEffects effects(const CachedAttention&) { return kPure; }

OpCost cost(const CachedAttention& op, Specs inputs, Specs outputs) {
  const std::int64_t positions = inputs[2].shape[2];
  const double keys = static_cast<double>(
      op.shape.window > 0 ? std::min<std::int64_t>(positions, op.shape.window) : positions);
  const double rows = static_cast<double>(inputs[0].shape.rows());
  const double flops = rows * keys * static_cast<double>(op.shape.heads) *
                       (4 * static_cast<double>(op.shape.head_dim) + kNonlinear);
  return estimate(flops, bytes_moved(effects(op), inputs, outputs));
}

}  // namespace volta::rules
