#include "nn/transformer_graph.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "nn/rope_table.h"
#include "nn/transformer_layers.h"
#include "nn/weight_names.h"

namespace volta {
namespace {

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
    VOLTA_TRY(x, layers::scale(c.graph, x,
                               static_cast<float>(std::sqrt(static_cast<double>(config.dim)))));
  }
  VOLTA_TRY(x, layers::scale(c.graph, x, config.embedding_scale));
  if (config.position == PositionKind::kLearned) {
    VOLTA_TRY(const ValueId places, table(names.positions, config.context));
    VOLTA_TRY(const ValueId place, c.graph.add_one(Embedding{}, {places, c.positions}));
    VOLTA_TRY(x, c.graph.add_one(Binary{BinaryKind::kAdd}, {x, place}));
  }
  return layers::dropout(c, x, kEmbeddingStream);
}

// Final norm and output projection of x [.., D].
Result<ValueId> head(const LayerContext& c, ValueId x) {
  const TransformerConfig& config = c.config;
  const WeightNames& names = weight_names(config);
  c.graph.set_scope("head");
  VOLTA_TRY(x, layers::norm(c, x, std::string(names.final_norm)));
  const std::string name =
      fmt::format("{}.weight", config.tied_output ? names.embedding : names.output);
  VOLTA_TRY(const ValueId w, model_parameter(c.graph, name, Shape(config.vocab_size, config.dim)));
  VOLTA_TRY(ValueId logits, c.graph.add_one(MatMul{.transpose_b = true}, {x, w}));
  VOLTA_TRY(logits, layers::scale(c.graph, logits, 1.0f / config.logit_divisor));
  if (config.logit_softcap == 0.0f) return logits;
  VOLTA_TRY(logits, layers::scale(c.graph, logits, 1.0f / config.logit_softcap));
  VOLTA_TRY(logits, c.graph.add_one(Unary{UnaryKind::kTanh}, {logits}));
  return layers::scale(c.graph, logits, config.logit_softcap);
}

}  // namespace

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
  const AttentionKvNames names = cache_names(context.layer);
  VOLTA_TRY(const ValueId k, graph.state(names.k, specs.k));
  VOLTA_TRY(const ValueId v, graph.state(names.v, specs.v));
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
