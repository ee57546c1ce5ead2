#include "nn/transformer_graph.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "base/hash.h"
#include "nn/rope_table.h"
#include "nn/weight_names.h"

namespace volta {
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

Result<ValueId> scale(Graph& graph, ValueId x, float factor) {
  if (factor == 1.0f) return x;
  return graph.add_one(Unary{UnaryKind::kScale, factor}, {x});
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
    VOLTA_TRY(parts.gate, scale(c.graph, parts.gate, config.activation_scale));
    VOLTA_TRY(hidden, c.graph.add_one(GatedUnit{config.activation}, {parts.gate, parts.up}));
  } else {
    VOLTA_TRY(hidden,
              linear(c, x, {fmt::format("{}.{}", mlp, names.up), config.ffn, config.ffn_bias}));
    VOLTA_TRY(hidden, scale(c.graph, hidden, config.activation_scale));
    VOLTA_TRY(hidden, activate(c.graph, hidden, config.activation));
  }
  VOLTA_TRY(hidden, scale(c.graph, hidden, 1.0f / config.activation_scale));
  return linear(c, hidden, {fmt::format("{}.{}", mlp, names.down), config.dim, config.ffn_bias});
}

// Philox streams: 1 for the embedding, and four per layer from 16 on. 0 is for the code that
// initialises weights.
constexpr std::uint32_t kEmbeddingStream = 1;
constexpr std::uint32_t layer_stream(std::int64_t layer) {
  return 16 + 4 * static_cast<std::uint32_t>(layer);
}

// The inputs that every graph of a model has in common.
struct ModelInputs {
  ValueId ids;
  ValueId positions;
  ValueId rope_table;
  ValueId local_rope_table;
  ValueId rng;
};

// Adds the rotation tables that the graph's layers use, with `rows` and `local_rows` rows.
Status add_rope_tables(Graph& graph, const TransformerConfig& config, std::int64_t rows,
                       std::int64_t local_rows, ModelInputs& in) {
  bool global = false, local = false;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (!config.layer_rotates(layer)) continue;
    (config.layer_rotates_locally(layer) ? local : global) = true;
  }
  const auto spec = [&](std::int64_t count) {
    return TensorSpec{DType::kF32, Shape(count, config.rotated())};
  };
  if (global) {
    VOLTA_TRY(in.rope_table, graph.parameter(std::string(kRopeTable), spec(rows)));
  }
  if (local) {
    VOLTA_TRY(in.local_rope_table, graph.parameter(std::string(kLocalRopeTable), spec(local_rows)));
  }
  return {};
}

// The local rotation table has `longest` rows, one for every position that a token may have.
Result<ModelInputs> add_inputs(Graph& graph, const TransformerConfig& config, const Shape& ids,
                               const Shape& positions, std::int64_t rope_rows, std::int64_t longest,
                               bool rng) {
  ModelInputs in;
  VOLTA_TRY(in.ids, graph.input("ids", {DType::kI32, ids}));
  VOLTA_TRY(in.positions, graph.input("positions", {DType::kI32, positions}));
  VOLTA_TRY(add_rope_tables(graph, config, rope_rows, longest, in));
  if (rng) {
    VOLTA_TRY(in.rng, graph.input("rng", {DType::kI64, Shape(2)}));
  }
  return in;
}

// Prepares `context` for a layer. `rotations` are the rows of "rope.table" for the tokens.
void enter_layer(LayerContext& context, std::int64_t layer, const ModelInputs& in,
                 ValueId rotations) {
  context.layer = layer;
  context.prefix = weight_names(context.config).block(layer);
  const bool local = context.config.layer_rotates_locally(layer);
  context.rope_table = local ? in.local_rope_table : in.rope_table;
  context.rope_rows = local ? in.positions : rotations;
}

Result<ValueId> embed(const LayerContext& c, ValueId ids) {
  const TransformerConfig& config = c.config;
  const WeightNames& names = weight_names(config);
  const auto table = [&](std::string_view name, std::int64_t rows) {
    return model_parameter(c.graph, fmt::format("{}.weight", name), Shape(rows, config.dim));
  };
  c.graph.set_scope("embed");
  VOLTA_TRY(const ValueId tokens, table(names.embedding, config.vocab_size));
  VOLTA_TRY(ValueId x, c.graph.add_one(Embedding{}, {tokens, ids}));
  if (config.embedding_scaled) {
    VOLTA_TRY(x, scale(c.graph, x, static_cast<float>(std::sqrt(static_cast<double>(config.dim)))));
  }
  VOLTA_TRY(x, scale(c.graph, x, config.embedding_scale));
  if (config.position == PositionKind::kLearned) {
    VOLTA_TRY(const ValueId places, table(names.positions, config.context));
    VOLTA_TRY(const ValueId place, c.graph.add_one(Embedding{}, {places, c.positions}));
    VOLTA_TRY(x, c.graph.add_one(Binary{BinaryKind::kAdd}, {x, place}));
  }
  return dropout(c, x, kEmbeddingStream);
}

// Final norm and output projection of x [.., D].
Result<ValueId> head(const LayerContext& c, ValueId x) {
  const TransformerConfig& config = c.config;
  const WeightNames& names = weight_names(config);
  c.graph.set_scope("head");
  VOLTA_TRY(x, norm(c, x, std::string(names.final_norm)));
  const std::string name =
      fmt::format("{}.weight", config.tied_output ? names.embedding : names.output);
  VOLTA_TRY(const ValueId w, model_parameter(c.graph, name, Shape(config.vocab_size, config.dim)));
  VOLTA_TRY(ValueId logits, c.graph.add_one(MatMul{.transpose_b = true}, {x, w}));
  VOLTA_TRY(logits, scale(c.graph, logits, 1.0f / config.logit_divisor));
  if (config.logit_softcap == 0.0f) return logits;
  VOLTA_TRY(logits, scale(c.graph, logits, 1.0f / config.logit_softcap));
  VOLTA_TRY(logits, c.graph.add_one(Unary{UnaryKind::kTanh}, {logits}));
  return scale(c.graph, logits, config.logit_softcap);
}

}  // namespace

Result<ValueId> model_parameter(Graph& graph, const std::string& name, const Shape& shape) {
  if (const auto known = graph.find(name)) return *known;
  return graph.parameter(name, {DType::kF32, shape});
}

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
    return norm(context, value, fmt::format("{}.{}", context.prefix, name));
  };
  graph.set_scope(context.prefix + ".attn");
  VOLTA_TRY(ValueId h, norm_if(before, x, names.attention_norm));
  VOLTA_TRY(h, MultiHeadSelfAttentionLayer::build(context, h));
  VOLTA_TRY(h, norm_if(after, h, names.attention_norm_after));
  VOLTA_TRY(h, scale(graph, h, context.config.residual_scale));
  VOLTA_TRY(h, dropout(context, h, context.stream + 1));
  VOLTA_TRY(x, graph.add_one(Binary{BinaryKind::kAdd}, {h, x}));
  graph.set_scope(context.prefix + ".mlp");
  VOLTA_TRY(h, norm_if(before, x, names.ffn_norm));
  VOLTA_TRY(h, feed_forward(context, h));
  VOLTA_TRY(h, norm_if(after, h, names.ffn_norm_after));
  VOLTA_TRY(h, scale(graph, h, context.config.residual_scale));
  VOLTA_TRY(h, dropout(context, h, context.stream + 2));
  return graph.add_one(Binary{BinaryKind::kAdd}, {h, x});
}

Result<ValueId> build_body(Graph& graph, const TransformerConfig& config, std::int64_t batch,
                           std::int64_t time, const DropoutOptions& options,
                           const LoraConfig& lora) {
  VOLTA_TRY(validate(config));
  if (time > config.context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("sequences of {} tokens are longer than the model's context of {}",
                            time, config.context));
  }
  const bool drops = options.p > 0.0f || lora.dropout > 0.0f;
  VOLTA_TRY(const ModelInputs in,
            add_inputs(graph, config, Shape(batch, time), Shape(time), time, time, drops));
  LayerContext context{.graph = graph,
                       .config = config,
                       .positions = in.positions,
                       .rng = in.rng,
                       .dropout = options.p,
                       .lora = lora};
  VOLTA_TRY(ValueId x, embed(context, in.ids));
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    enter_layer(context, layer, in, in.positions);
    context.stream = layer_stream(layer);
    VOLTA_TRY(x, TransformerBlock::build(context, x));
  }
  return x;
}

Result<ValueId> build_head(Graph& graph, const TransformerConfig& config, ValueId x) {
  return head({.graph = graph, .config = config}, x);
}

Result<ValueId> build_logits(Graph& graph, const TransformerConfig& config, std::int64_t batch,
                             std::int64_t time, const DropoutOptions& options,
                             const LoraConfig& lora) {
  VOLTA_TRY(const ValueId x, build_body(graph, config, batch, time, options, lora));
  return build_head(graph, config, x);
}

Result<Graph> build_evaluation_graph(const TransformerConfig& config, std::int64_t batch,
                                     std::int64_t time, bool want_logits, const LoraConfig& lora) {
  Graph graph;
  VOLTA_TRY(const ValueId logits,
            build_logits(graph, config, batch, time, {}, lora.without_dropout()));
  VOLTA_TRY(const ValueId targets, graph.input("targets", {DType::kI32, Shape(batch, time)}));
  graph.set_scope("loss");
  VOLTA_TRY(const ValueId loss, graph.add_one(CrossEntropy{}, {logits, targets}));
  VOLTA_TRY(graph.output("token_loss", loss));
  if (want_logits) {
    VOLTA_TRY(graph.output("logits", logits));
  }
  return graph;
}

namespace {

// The inputs that tell which sequence and position each row of a step has, and each group's tables.
struct StepInputs {
  ValueId positions{}, sequences{}, rows{};
  std::vector<ValueId> tables{};
};

Result<StepInputs> add_step_inputs(Graph& graph, const TransformerConfig& config,
                                   const CachedGraphOptions& options, ValueId positions) {
  StepInputs in{.positions = positions};
  VOLTA_TRY(in.sequences, graph.input("sequences", {DType::kI32, Shape(options.rows)}));
  VOLTA_TRY(in.rows, graph.input("rows", {DType::kI32, Shape(1)}));
  const Shape table(options.cache.slots, table_blocks(config, options.cache));
  for (const CacheGroup& group : cache_groups(config)) {
    VOLTA_TRY(const ValueId id, graph.input(std::string(group.table), {DType::kI32, table}));
    in.tables.push_back(id);
  }
  return in;
}

// Adds the cache of context.layer as inputs of its attention.
Status add_cache(LayerContext& context, const CachedGraphOptions& options, const StepInputs& in) {
  const TransformerConfig& config = context.config;
  const std::size_t group = layer_group(config, context.layer);
  const std::int64_t pages = pool_pages(config, options.cache, cache_groups(config)[group]);
  const auto specs = cache_specs(config, pages, options.cache.dtype);
  Graph& graph = context.graph;
  VOLTA_TRY(const ValueId k, graph.state(fmt::format("cache.{}.k", context.layer), specs.k));
  VOLTA_TRY(const ValueId v, graph.state(fmt::format("cache.{}.v", context.layer), specs.v));
  context.cache = {k, v, in.positions, in.sequences, in.rows, in.tables[group]};
  return {};
}

Status add_sampling(Graph& graph, const TransformerConfig& config,
                    const CachedGraphOptions& options, ValueId logits) {
  graph.set_scope("sample");
  const std::int64_t rows = options.logit_rows;
  VOLTA_TRY(const ValueId params,
            graph.input("sampling", {DType::kF32, Shape(rows, kSampleParams)}));
  VOLTA_TRY(const ValueId rng, graph.input("sample_rng", {DType::kI64, Shape(rows, 2)}));
  VOLTA_TRY(const ValueId sequences, graph.input("sample_sequences", {DType::kI32, Shape(rows)}));
  VOLTA_TRY(const ValueId counts,
            graph.state("counts", {DType::kI32, Shape(options.cache.slots, 2, config.vocab_size)}));
  VOLTA_TRY(const auto drawn,
            graph.add(Sample{options.top}, std::vector{logits, params, rng, counts, sequences}));
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    constexpr std::array kNames = {"token", "logprob", "top_tokens", "top_logprobs"};
    VOLTA_TRY(graph.output(kNames[i], drawn[i]));
  }
  return {};
}

}  // namespace

Result<Graph> build_cached_graph(const TransformerConfig& config,
                                 const CachedGraphOptions& options) {
  VOLTA_TRY(TransformerKvCache::bytes_for(config, options.cache));
  const std::int64_t capacity =
      options.cache.capacity == 0 ? config.context : options.cache.capacity;
  const bool by_length = rope_depends_on_length(config);
  const Shape rows(options.rows);
  Graph graph;
  VOLTA_TRY(const ModelInputs in, add_inputs(graph, config, rows, rows,
                                             by_length ? 2 * capacity : capacity, capacity, false));
  VOLTA_TRY(const StepInputs step, add_step_inputs(graph, config, options, in.positions));
  VOLTA_TRY(const ValueId logit_rows,
            graph.input("logit_rows", {DType::kI32, Shape(options.logit_rows)}));
  LayerContext context{.graph = graph,
                       .config = config,
                       .positions = in.positions,
                       .rng = {},
                       .lora = options.lora.without_dropout()};
  ValueId rotations = in.positions;
  if (by_length) {
    VOLTA_TRY(rotations, graph.input("rotations", {DType::kI32, rows}));
  }
  VOLTA_TRY(ValueId x, embed(context, in.ids));
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    enter_layer(context, layer, in, rotations);
    VOLTA_TRY(add_cache(context, options, step));
    VOLTA_TRY(x, TransformerBlock::build(context, x));
  }
  VOLTA_TRY(x, graph.add_one(Embedding{}, {x, logit_rows}));
  VOLTA_TRY(const ValueId logits, head(context, x));
  VOLTA_TRY(graph.output("logits", logits));
  if (options.sampling) VOLTA_TRY(add_sampling(graph, config, options, logits));
  return graph;
}

}  // namespace volta
