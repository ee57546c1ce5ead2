// The graphs of a transformer for evaluation and for steps over a KV cache, built from layers. The
// graphs that train it are in nn/training_graph.h. Shapes are fixed per graph. The names of inputs,
// states and outputs are listed here. With rotary positions a graph has the parameter "rope.table"
// f32[rows, rotated], with a row for every position that may occur. If layers with a window have a
// base of their own, it also has "rope.local_table", in the same form. Shapes: [B batch, T time, N
// rows of tokens, L rows of logits, S sequences, P pages, V vocabulary, D width]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "nn/kv_cache.h"
#include "nn/lora.h"
#include "nn/transformer_config.h"

namespace [[gnu::visibility("default")]] volta {

/// Dropout in the three places where GPT-2 has it: embedding, attention probabilities, residual
/// branches.
struct DropoutOptions {
  float p = 0.0f;  ///< 0: none, and the graph has no "rng" input.
};

/// A weight of the model as a graph parameter. A second use of a name (a tied output) returns the
/// first one's value.
Result<ValueId> model_parameter(Graph& graph, const std::string& name, const Shape& shape);

/// What a layer needs besides its input while a graph is built.
struct LayerContext {
  Graph& graph;
  const TransformerConfig& config;
  std::int64_t layer = 0;
  std::string prefix{};  ///< Name path of the layer's weights, e.g. "transformer.h.0".
  ValueId positions{};   ///< i32, with the shape of x without its last axis, or a suffix of it.
  /// The rotation in this layer: a table, and each token's row in it. The table is invalid if
  /// nothing is rotated.
  ValueId rope_table{}, rope_rows{};
  ValueId rng{};  ///< Invalid without dropout.
  float dropout = 0.0f;
  std::uint32_t stream = 0;  ///< First Philox stream this layer may use.
  LoraConfig lora{};         ///< Its targets get an adapter's nodes.
  /// For attention over a cache: the inputs of KvAppend and CachedAttention that follow the rows of
  /// tokens. Empty if whole sequences attend to themselves.
  std::vector<ValueId> cache{};
  bool cached() const { return !cache.empty(); }
};

/// Causal self-attention with grouped heads: projections, rotation, attention, output projection.
struct MultiHeadSelfAttentionLayer {
  /// x [.., D] (normed) -> [.., D], without the residual. `prefix` names the block.
  static Result<ValueId> build(const LayerContext& context, ValueId x);
};
/// x += attention(norm(x)); x += ffn(norm(x)), with the norms placed by config.norm_place.
struct TransformerBlock {
  static Result<ValueId> build(const LayerContext& context, ValueId x);
};

/// ids i32[B, T] -> x f32[B, T, D], the output of the last block.
/// Inputs: "ids", "positions" i32[T] ("rng" with dropout).
Result<ValueId> build_body(Graph& graph, const TransformerConfig& config, std::int64_t batch,
                           std::int64_t time, const DropoutOptions& dropout = {},
                           const LoraConfig& lora = {});
/// The final norm and the output projection: x f32[.., D] -> logits f32[.., V].
Result<ValueId> build_head(Graph& graph, const TransformerConfig& config, ValueId x);
/// Body and head: ids i32[B, T] -> logits f32[B, T, V]. Returns the logits; the caller names its
/// outputs. With an active `lora` (completed: complete_lora()) the graph also has the parameters
/// lora_parameters() of an adapter. This holds for the functions below, too.
Result<ValueId> build_logits(Graph& graph, const TransformerConfig& config, std::int64_t batch,
                             std::int64_t time, const DropoutOptions& dropout = {},
                             const LoraConfig& lora = {});

/// Evaluation.  Inputs: "ids", "targets" i32[B, T] (negative: ignored), "positions".
/// Outputs: "token_loss" f32[B, T], "logits" f32[B, T, V] if wanted.
Result<Graph> build_evaluation_graph(const TransformerConfig& config, std::int64_t batch,
                                     std::int64_t time, bool logits, const LoraConfig& lora = {});

/// A step over a KV cache: N rows of tokens of any sequences. Rows are pieces of prompts, or the
/// newest tokens of sequences that are being decoded.
/// Inputs: "ids", "positions" (in the sequence) and "sequences" i32[N]; "rows" i32[1], the number
/// of rows that count; for each of cache_groups() its tables i32[S, blocks], by name; "logit_rows"
/// i32[L], the rows whose logits are needed. If angles depend on the length of a sequence
/// (rope_depends_on_length()), also "rotations" i32[N], the row of "rope.table" for each token: of
/// its 2 capacity rows the first half is for decoding, the second for prompts.
/// States: "cache.N.k", "cache.N.v" as cache_specs() says, of pool_pages() pages.
/// Outputs: "logits" f32[L, V]. With sampling also inputs "sampling" f32[L, kSampleParams],
/// "sample_rng" i64[L, 2] and "sample_sequences" i32[L], state "counts" i32[S, 2, V], outputs
/// "token" i32[L] and "logprob" f32[L]; with top > 0 "top_tokens" i32[L, top] and "top_logprobs"
/// f32[L, top].
struct CachedGraphOptions {
  std::int64_t rows = 1;        ///< N.
  std::int64_t logit_rows = 1;  ///< L.
  KvCacheSizes cache{};
  bool sampling = true;
  std::int32_t top = 0;  ///< How many of the likeliest tokens to report with each drawn one.
  LoraConfig lora{};
};
Result<Graph> build_cached_graph(const TransformerConfig& config,
                                 const CachedGraphOptions& options);

}  // namespace volta
