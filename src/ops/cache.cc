// Attention over a key/value cache: KvAppend and CachedAttention.
#include <algorithm>

#include "ops/attention.h"
#include "ops/traits.h"

namespace volta::rules {

namespace {

// The first inputs are rows of tokens: qkv, q, or k and v. In both ops cache_k, cache_v, positions,
// sequences, rows and table follow them.
constexpr std::size_t kCacheInputs = 6;

Status check_cache(const Check& check, const AttentionShape& shape, Specs inputs,
                   std::size_t first) {
  const TensorSpec& keys = inputs[first];
  const std::int64_t pages = keys.shape[0];
  const TensorSpec row = {DType::kI32, Shape(inputs[0].shape[0])};
  VOLTA_TRY(check.floating(first, "cache_k"));
  VOLTA_TRY(check.that(keys.shape == key_cache_shape(pages, shape.kv_heads, shape.head_dim),
                       "cache_k [pages, kv_heads, head_dim, 64]"));
  VOLTA_TRY(check.is(first + 1, "cache_v",
                     {keys.dtype, value_cache_shape(pages, shape.kv_heads, shape.head_dim)}));
  VOLTA_TRY(check.is(first + 2, "positions", row));
  VOLTA_TRY(check.is(first + 3, "sequences", row));
  VOLTA_TRY(check.is(first + 4, "rows", {DType::kI32, Shape(1)}));
  VOLTA_TRY(check.type(first + 5, "table", DType::kI32));
  return check.that(inputs[first + 5].shape.rank() == 2, "table [sequences, blocks]");
}

// Checks that input i is t[N, width], with the type t and the rows N of input 0.
Status check_rows(const Check& check, Specs inputs, std::size_t i, std::string_view name,
                  std::int64_t width) {
  const TensorSpec& first = inputs[0];
  VOLTA_TRY(check.floating(0, "rows"));
  VOLTA_TRY(check.that(first.shape.rank() == 2, "rows [tokens, width]"));
  return check.is(i, name, {first.dtype, Shape(first.shape[0], width)});
}

}  // namespace

Result<SpecList> infer(const KvAppend& op, Specs inputs) {
  const Check check(op, inputs);
  VOLTA_TRY(check_attention_shape(check, op.shape));
  VOLTA_TRY(check.that(op.shape.causal, "causal attention: a cache has no later keys"));
  const AttentionWidths width = attention_widths(op.shape);
  const std::size_t rows = op.shape.packed ? 1 : 2;
  VOLTA_TRY(check.count(rows + kCacheInputs,
                        "qkv if packed, else k, v; cache_k, cache_v, positions, sequences, rows, "
                        "table"));
  if (op.shape.packed) {
    VOLTA_TRY(check_rows(check, inputs, 0, "qkv", width.packed));
  } else {
    VOLTA_TRY(check_rows(check, inputs, 0, "k", width.kv));
    VOLTA_TRY(check_rows(check, inputs, 1, "v", width.kv));
  }
  VOLTA_TRY(check_cache(check, op.shape, inputs, rows));
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

// Writes cache_k and cache_v, which follow qkv, or k and v.
OpEffects effects(const KvAppend& op) {
  return {.writes = op.shape.packed ? 0b0110u : 0b1100u, .overwrites = 0};
}

// The new rows are read once and written once.
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
  VOLTA_TRY(check.that(op.shape.causal, "causal attention: a cache has no later keys"));
  const AttentionWidths width = attention_widths(op.shape);
  VOLTA_TRY(
      check.count(1 + kCacheInputs,
                  "qkv if packed, else q; cache_k, cache_v, positions, sequences, rows, table"));
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

// Assumes that every row sees all positions that the table can hold (or its window), and that every
// sequence is read once.
OpCost cost(const CachedAttention& op, Specs inputs, Specs outputs) {
  const TensorSpec& table = inputs.back();
  const std::int64_t positions = table.shape[1] * kAttentionKeyBlock;
  const double keys = static_cast<double>(
      op.shape.window > 0 ? std::min<std::int64_t>(positions, op.shape.window) : positions);
  const double rows = static_cast<double>(inputs[0].shape.rows());
  const double flops = rows * keys * static_cast<double>(op.shape.heads) *
                       (4 * static_cast<double>(op.shape.head_dim) + kNonlinear);
  const double sequences = std::min(rows, static_cast<double>(table.shape[0]));
  const double cached = 2 * sequences * keys * static_cast<double>(op.shape.kv_heads) *
                        static_cast<double>(op.shape.head_dim) *
                        static_cast<double>(dtype_size(inputs[1].dtype));
  return estimate(flops, total_bytes(inputs.first(1)) + cached + total_bytes(outputs));
}

}  // namespace volta::rules
