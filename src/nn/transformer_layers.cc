#include "nn/transformer_layers.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "nn/lora.h"
#include "nn/weight_names.h"

namespace volta {

Result<ValueId> model_parameter(Graph& graph, const std::string& name, const Shape& shape) {
  if (const auto known = graph.find(name)) return *known;
  return graph.parameter(name, {DType::kF32, shape});
}

namespace layers {

Result<ValueId> norm(const LayerContext& c, ValueId x, const std::string& name) {
  const std::int64_t dim = c.graph.spec(x).shape.columns();
  const Norm op{c.config.norm, c.config.norm_bias, c.config.norm_eps, c.config.norm_plus_one};
  VOLTA_TRY(const ValueId w, model_parameter(c.graph, name + ".weight", Shape(dim)));
  if (!op.has_bias) return c.graph.add_one(op, {x, w});
  VOLTA_TRY(const ValueId b, model_parameter(c.graph, name + ".bias", Shape(dim)));
  return c.graph.add_one(op, {x, w, b});
}

Result<ValueId> dropout(const LayerContext& c, ValueId x, std::uint32_t stream) {
  if (c.dropout == 0.0f) return x;
  return c.graph.add_one(Dropout{c.dropout, stream}, {x, c.rng});
}

Result<ValueId> scale(Graph& graph, ValueId x, float factor) {
  if (factor == 1.0f) return x;
  return graph.add_one(Unary{UnaryKind::kScale, factor}, {x});
}

}  // namespace layers

namespace {

// y = x W (+ b). `outputs` is the width of y.
struct Linear {
  std::string name;
  std::int64_t outputs = 0;
  bool bias = false;
};

// y + scale * dropout(x) A^T B^T if the adapter targets the layer. Each layer has its own dropout
// stream, which is derived from its path.
Result<ValueId> add_lora(const LayerContext& c, ValueId x, ValueId y, const Linear& layer) {
  if (!is_target(c.lora, layer.name)) return y;
  Graph& graph = c.graph;
  const LoraLayer names{.name = layer.name};
  const std::int64_t inputs = graph.spec(x).shape.columns();
  VOLTA_TRY(const ValueId a, model_parameter(graph, names.a(), Shape(c.lora.rank, inputs)));
  VOLTA_TRY(const ValueId b, model_parameter(graph, names.b(), Shape(layer.outputs, c.lora.rank)));
  if (c.lora.dropout > 0.0f) {
    const Dropout drop{c.lora.dropout, static_cast<std::uint32_t>(hash64(layer.name))};
    VOLTA_TRY(x, graph.add_one(drop, {x, c.rng}));
  }
  VOLTA_TRY(ValueId h, graph.add_one(MatMul{.transpose_b = true}, {x, a}));
  VOLTA_TRY(h, graph.add_one(Unary{UnaryKind::kScale, c.lora.scale()}, {h}));
  VOLTA_TRY(h, graph.add_one(MatMul{.transpose_b = true}, {h, b}));
  return graph.add_one(Binary{BinaryKind::kAdd}, {h, y});
}

Result<ValueId> linear(const LayerContext& c, ValueId x, const Linear& layer) {
  const bool in_out = weight_names(c.config).in_out;
  const std::int64_t inputs = c.graph.spec(x).shape.columns();
  const Shape shape = in_out ? Shape(inputs, layer.outputs) : Shape(layer.outputs, inputs);
  VOLTA_TRY(const ValueId w, model_parameter(c.graph, layer.name + ".weight", shape));
  const MatMul op{.transpose_b = !in_out};
  VOLTA_TRY(ValueId y, c.graph.add_one(op, {x, w}));
  if (layer.bias) {
    VOLTA_TRY(const ValueId b,
              model_parameter(c.graph, layer.name + ".bias", Shape(layer.outputs)));
    VOLTA_TRY(y, c.graph.add_one(Binary{BinaryKind::kAdd}, {y, b}));
  }
  return add_lora(c, x, y, layer);
}

Result<ValueId> activate(Graph& graph, ValueId x, Activation activation) {
  if (activation == Activation::kNone) return x;
  if (is_activation(activation)) return graph.add_one(Unary{activation}, {x});
  return fail(ErrorCode::kInternal, "unknown activation");
}

// RMS norm over each head of a [.., heads * head_dim] value, or over all of them at once.
Result<ValueId> head_norm(const LayerContext& c, ValueId x, std::int64_t heads,
                          const std::string& name) {
  const Norm op{NormKind::kRms, false, c.config.norm_eps, c.config.norm_plus_one};
  const Shape flat = c.graph.spec(x).shape;
  if (c.config.qk_norm_whole) {
    VOLTA_TRY(const ValueId w, model_parameter(c.graph, name + ".weight", Shape(flat.columns())));
    return c.graph.add_one(op, {x, w});
  }
  Shape split = flat;
  split.set(-1, heads);
  if (!split.push_back(c.config.head_dim)) {
    return fail(ErrorCode::kInvalidArgument, "query and key norms need a value of lower rank");
  }
  VOLTA_TRY(const ValueId by_head, c.graph.add_one(Reshape{split}, {x}));
  VOLTA_TRY(const ValueId w, model_parameter(c.graph, name + ".weight", Shape(c.config.head_dim)));
  VOLTA_TRY(const ValueId y, c.graph.add_one(op, {by_head, w}));
  return c.graph.add_one(Reshape{flat}, {y});
}

// Some columns of a packed row: one of q, k and v, or one of gate and up.
Result<ValueId> columns(const LayerContext& c, ValueId x, std::int64_t begin, std::int64_t length) {
  const auto axis = static_cast<std::int32_t>(c.graph.spec(x).shape.rank() - 1);
  return c.graph.add_one(Slice{axis, begin, length}, {x});
}

struct Qkv {
  bool packed = false;
  ValueId q;  // The packed value when packed.
  ValueId k;
  ValueId v;
};

// Rotates the first `heads` heads of a row and leaves the others unchanged.
Result<ValueId> rotate(const LayerContext& c, ValueId x, std::int64_t heads) {
  if (!c.config.layer_rotates(c.layer)) return x;
  const Rope op{static_cast<std::int32_t>(heads), static_cast<std::int32_t>(c.config.head_dim)};
  return c.graph.add_one(op, {x, c.rope_rows, c.rope_table});
}

// Projections, query/key norms and rotation.
Result<Qkv> project(const LayerContext& c, ValueId x) {
  const TransformerConfig& config = c.config;
  const WeightNames& names = weight_names(config);
  const std::int64_t q_width = config.heads * config.head_dim;
  const std::int64_t kv_width = config.kv_heads * config.head_dim;
  const auto path = [&](std::string_view name) {
    return fmt::format("{}.{}.{}", c.prefix, names.attention, name);
  };
  Qkv out;
  if (!names.qkv.empty()) {
    VOLTA_TRY(ValueId all,
              linear(c, x, {path(names.qkv), q_width + 2 * kv_width, config.attention_bias}));
    out.packed = !config.qk_norm;
    if (out.packed) {
      VOLTA_TRY(out.q, rotate(c, all, config.heads + config.kv_heads));
      return out;
    }
    VOLTA_TRY(out.q, columns(c, all, 0, q_width));
    VOLTA_TRY(out.k, columns(c, all, q_width, kv_width));
    VOLTA_TRY(out.v, columns(c, all, q_width + kv_width, kv_width));
  } else {
    VOLTA_TRY(out.q, linear(c, x, {path(names.q), q_width, config.attention_bias}));
    VOLTA_TRY(out.k, linear(c, x, {path(names.k), kv_width, config.attention_bias}));
    VOLTA_TRY(out.v, linear(c, x, {path(names.v), kv_width, config.attention_bias}));
  }
  if (config.qk_norm) {
    VOLTA_TRY(out.q, head_norm(c, out.q, config.heads, path(names.q_norm)));
    VOLTA_TRY(out.k, head_norm(c, out.k, config.kv_heads, path(names.k_norm)));
  }
  VOLTA_TRY(out.q, rotate(c, out.q, config.heads));
  VOLTA_TRY(out.k, rotate(c, out.k, config.kv_heads));
  return out;
}

// The factor of attention scores.
float attention_scale(const LayerContext& c) {
  double scale = 1.0;
  const double under_root = c.config.query_scalar > 0.0f
                                ? static_cast<double>(c.config.query_scalar)
                                : static_cast<double>(c.config.head_dim);
  if (c.config.attention_scale > 0.0f) {
    scale = static_cast<double>(c.config.attention_scale);
  } else if (c.config.attention_scaled) {
    scale /= std::sqrt(under_root);
  }
  if (c.config.attention_scaled_by_layer) scale /= static_cast<double>(c.layer + 1);
  return static_cast<float>(scale);
}

AttentionShape attention_shape(const LayerContext& c, bool packed) {
  const TransformerConfig& config = c.config;
  return {.heads = static_cast<std::int32_t>(config.heads),
          .kv_heads = static_cast<std::int32_t>(config.kv_heads),
          .head_dim = static_cast<std::int32_t>(config.head_dim),
          .window = config.layer_window(c.layer),
          .scale = attention_scale(c),
          .packed = packed,
          .softcap = config.attention_softcap};
}

Result<ValueId> attend(const LayerContext& c, const Qkv& qkv) {
  const AttentionShape shape = attention_shape(c, qkv.packed);
  Graph& graph = c.graph;
  if (c.cached()) {
    const auto before_cache = [&](std::vector<ValueId> rows) {
      rows.insert(rows.end(), c.cache.begin(), c.cache.end());
      return rows;
    };
    const auto appended = qkv.packed ? std::vector{qkv.q} : std::vector{qkv.k, qkv.v};
    VOLTA_TRY(graph.add(KvAppend{shape}, before_cache(appended)));
    VOLTA_TRY(const auto outputs,
              graph.add(CachedAttention{shape}, before_cache(std::vector{qkv.q})));
    return outputs.front();
  }
  const Attention attention{shape, c.dropout, c.stream};
  std::vector<ValueId> inputs = {qkv.q};
  if (!qkv.packed) inputs.insert(inputs.end(), {qkv.k, qkv.v});
  if (c.dropout > 0.0f) inputs.push_back(c.rng);
  VOLTA_TRY(const auto outputs, graph.add(attention, inputs));
  return outputs.front();
}

// The gate and the value that it multiplies. They come from one product if the files have one
// matrix for both.
struct GateUp {
  ValueId gate, up;
};
Result<GateUp> gate_and_up(const LayerContext& c, ValueId x, const std::string& mlp) {
  const TransformerConfig& config = c.config;
  const WeightNames& names = weight_names(config);
  GateUp out;
  if (names.gate_up.empty()) {
    VOLTA_TRY(out.gate,
              linear(c, x, {fmt::format("{}.{}", mlp, names.gate), config.ffn, config.ffn_bias}));
    VOLTA_TRY(out.up,
              linear(c, x, {fmt::format("{}.{}", mlp, names.up), config.ffn, config.ffn_bias}));
    return out;
  }
  VOLTA_TRY(
      const ValueId both,
      linear(c, x, {fmt::format("{}.{}", mlp, names.gate_up), 2 * config.ffn, config.ffn_bias}));
  VOLTA_TRY(out.gate, columns(c, both, 0, config.ffn));
  VOLTA_TRY(out.up, columns(c, both, config.ffn, config.ffn));
  return out;
}

Result<ValueId> feed_forward(const LayerContext& c, ValueId x) {
  const TransformerConfig& config = c.config;
  const WeightNames& names = weight_names(config);
  const std::string mlp = fmt::format("{}.{}", c.prefix, names.mlp);
  ValueId hidden;
  if (config.ffn_kind == FfnKind::kGated) {
    VOLTA_TRY(GateUp parts, gate_and_up(c, x, mlp));
    VOLTA_TRY(parts.gate, layers::scale(c.graph, parts.gate, config.activation_scale));
    VOLTA_TRY(hidden, c.graph.add_one(GatedUnit{config.activation}, {parts.gate, parts.up}));
  } else {
    VOLTA_TRY(hidden,
              linear(c, x, {fmt::format("{}.{}", mlp, names.up), config.ffn, config.ffn_bias}));
    VOLTA_TRY(hidden, layers::scale(c.graph, hidden, config.activation_scale));
    VOLTA_TRY(hidden, activate(c.graph, hidden, config.activation));
  }
  VOLTA_TRY(hidden, layers::scale(c.graph, hidden, 1.0f / config.activation_scale));
  return linear(c, hidden, {fmt::format("{}.{}", mlp, names.down), config.dim, config.ffn_bias});
}

}  // namespace

Result<ValueId> MultiHeadSelfAttentionLayer::build(const LayerContext& context, ValueId x) {
  const TransformerConfig& config = context.config;
  const WeightNames& names = weight_names(config);
  VOLTA_TRY(const Qkv qkv, project(context, x));
  VOLTA_TRY(const ValueId y, attend(context, qkv));
  const std::string name =
      fmt::format("{}.{}.{}", context.prefix, names.attention, names.attention_output);
  return linear(context, y, {name, config.dim, config.attention_out_bias});
}

Result<ValueId> TransformerBlock::build(const LayerContext& context, ValueId x) {
  const WeightNames& names = weight_names(context.config);
  const bool before = context.config.norm_place != NormPlace::kAfter;
  const bool after = context.config.norm_place != NormPlace::kBefore;
  Graph& graph = context.graph;
  const auto norm_if = [&](bool wanted, ValueId value, std::string_view name) -> Result<ValueId> {
    if (!wanted) return value;
    return layers::norm(context, value, fmt::format("{}.{}", context.prefix, name));
  };
  graph.set_scope(context.prefix + ".attn");
  VOLTA_TRY(ValueId h, norm_if(before, x, names.attention_norm));
  VOLTA_TRY(h, MultiHeadSelfAttentionLayer::build(context, h));
  VOLTA_TRY(h, norm_if(after, h, names.attention_norm_after));
  VOLTA_TRY(h, layers::scale(graph, h, context.config.residual_scale));
  VOLTA_TRY(h, layers::dropout(context, h, context.stream + 1));
  VOLTA_TRY(x, graph.add_one(Binary{BinaryKind::kAdd}, {h, x}));
  graph.set_scope(context.prefix + ".mlp");
  VOLTA_TRY(h, norm_if(before, x, names.ffn_norm));
  VOLTA_TRY(h, feed_forward(context, h));
  VOLTA_TRY(h, norm_if(after, h, names.ffn_norm_after));
  VOLTA_TRY(h, layers::scale(graph, h, context.config.residual_scale));
  VOLTA_TRY(h, layers::dropout(context, h, context.stream + 2));
  return graph.add_one(Binary{BinaryKind::kAdd}, {h, x});
}

}  // namespace volta
