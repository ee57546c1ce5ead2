// The graphs of a transformer: what it computes in evaluation and over a KV cache, built from
// layers; those that train it are in nn/training_graph.h. Shapes are fixed per graph; names of
// inputs, states and outputs are listed here. With rotary positions each has the parameter
// "rope.table" f32[rows, rotated], a row for every position that may occur, and where layers with a
// window have a base of their own "rope.local_table", likewise. [B batch, T time, N
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

/// Dropout at GPT-2's three places: embedding, attention probabilities, residual branches.
struct DropoutOptions {
  float p = 0.0f;  ///< 0: none, and the graph has no "rng" input.
};

/// A weight of the model as a graph parameter; the second use of a name (a tied output) gives the
/// first one's value.
Result<ValueId> model_parameter(Graph& graph, const std::string& name, const Shape& shape);

/// What a layer needs beside its input while a graph is built.
struct LayerContext {
  Graph& graph;
  const TransformerConfig& config;
  std::int64_t layer = 0;
  std::string prefix{};  ///< Name path of the layer's weights, e.g. "transformer.h.0".
  ValueId positions{};   ///< i32, rows of x without the last axis, or a suffix of that.
  /// Of the rotation in this layer; the table is invalid where nothing is rotated.
  ValueId rope_table{}, rope_rows{};
  ValueId rng{};  ///< Invalid without dropout.
  float dropout = 0.0f;
  std::uint32_t stream = 0;  ///< First Philox stream this layer may use.
  LoraConfig lora{};         ///< Whose targets get an adapter's nodes.
  /// Of this layer's attention over a cache: what KvAppend and CachedAttention take after the rows
  /// of tokens. Empty where whole sequences attend to themselves.
  std::vector<ValueId> cache{};
  bool cached() const { return !cache.empty(); }
};

/// Causal self-attention with grouped heads: projections, rotation, attention, output projection.
struct MultiHeadSelfAttentionLayer {
  /// x [.., D] (normed) -> [.., D], without the residual. `prefix` names the block.
  static Result<ValueId> build(const LayerContext& context, ValueId x);
};
/// x += attention(norm(x)); x += ffn(norm(x)), with the norms where config.norm_place says.
struct TransformerBlock {
  static Result<ValueId> build(const LayerContext& context, ValueId x);
};

/// ids i32[B, T] -> x f32[B, T, D], what the last block gives.   Inputs: "ids", "positions" i32[T]
/// ("rng" with dropout).
Result<ValueId> build_body(Graph& graph, const TransformerConfig& config, std::int64_t batch,
                           std::int64_t time, const DropoutOptions& dropout = {},
                           const LoraConfig& lora = {});
/// The final norm and the output projection: x f32[.., D] -> logits f32[.., V].
Result<ValueId> build_head(Graph& graph, const TransformerConfig& config, ValueId x);
/// Both: ids i32[B, T] -> logits f32[B, T, V].
/// Returns the logits; the caller names its outputs.
/// With `lora` (completed: complete_lora()) also the parameters lora_parameters() of an adapter;
/// elsewhere below, too.
Result<ValueId> build_logits(Graph& graph, const TransformerConfig& config, std::int64_t batch,
                             std::int64_t time, const DropoutOptions& dropout = {},
                             const LoraConfig& lora = {});

/// Evaluation.  Inputs: "ids", "targets" i32[B, T] (negative: ignored), "positions".
/// Outputs: "token_loss" f32[B, T], "logits" f32[B, T, V] if wanted.
Result<Graph> build_evaluation_graph(const TransformerConfig& config, std::int64_t batch,
                                     std::int64_t time, bool logits, const LoraConfig& lora = {});

/// A step over a KV cache: N rows of tokens, each of any sequence, be they pieces of prompts or the
/// newest tokens of sequences that are being decoded.
/// Inputs: "ids", "positions" (in its sequence) and "sequences" i32[N]; "rows" i32[1], how many of
/// them count; for each of cache_groups() its tables i32[S, blocks], by name; "logit_rows" i32[L],
/// the rows whose logits are wanted. Where angles depend on the length of a sequence
/// (rope_depends_on_length()) also "rotations" i32[N], the row of "rope.table" that each one takes:
/// of its 2 capacity rows the first half is for decoding, the other for prompts.
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
  std::int32_t top = 0;  ///< The likeliest tokens to tell with each one drawn.
  LoraConfig lora{};
};
Result<Graph> build_cached_graph(const TransformerConfig& config,
                                 const CachedGraphOptions& options);

}  // namespace volta
