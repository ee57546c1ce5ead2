// The families of the Hugging Face hub that are kin of Llama, as rows of a table: what their
// config.json is called and has for keys, and what sets their models apart. Reading and writing the
// keys is the business of formats/model_families.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "formats/rope_config.h"
#include "nn/transformer_config.h"

namespace volta {

/// How configs of a family say which layers have a sliding window.
struct WindowKeys {
  bool any = false;              ///< sliding_window is a key.
  bool needs_switch = false;     ///< It counts only with use_sliding_window.
  std::int64_t usual = 0;        ///< The window when the key is missing; 0: none.
  bool by_layer = false;         ///< layer_types says it for each layer.
  std::int64_t full_front = -1;  ///< Without: so many at the front have none (max_window_layers).
  std::int64_t full_every = 0;   ///< Without: every n-th has none; 0: all have one.
};
enum class BiasKeys : std::uint8_t {
  kNone,
  kQkv,           ///< Queries, keys and values always have one.
  kAttention,     ///< attention_bias: the output projection, too.
  kAttentionMlp,  ///< And mlp_bias.
};

/// What sets a family apart from Llama, and what a key means when it is missing, as the Hugging
/// Face classes have it. Where 0 is written the value follows from the others.
struct Family {
  std::string_view type;
  std::string_view architecture;  ///< The class in transformers.
  std::int64_t vocab_size = 0, dim = 0, ffn = 0, layers = 0, heads = 0, kv_heads = 0;
  std::int64_t head_dim = 0, context = 0;
  double eps = 1e-6;
  bool tied = false;
  std::string_view activation_key = "hidden_act", activation = "silu";
  BiasKeys biases = BiasKeys::kNone;
  WindowKeys windows{};
  RopeKeys rope{};
  WeightNaming naming = WeightNaming::kLlama;
  NormPlace norm_place = NormPlace::kBefore;
  bool qk_norm = false, qk_norm_whole = false;
  std::int64_t unrotated_every = 0;  ///< no_rope_layers; without that key every n-th layer.
  /// Gemma's: 1 + weight in norms, scaled embeddings, query_pre_attn_scalar, and the caps, of which
  /// these are the usual ones.
  bool gemma = false;
  bool attention_cap = false;
  double usual_attention_cap = 0.0, usual_logit_cap = 0.0;
};
/// All of them; GPT-2 is none.
std::span<const Family> families();
/// Null for a type that is none of them.
const Family* find_family(std::string_view type);

/// kInvalidFile for a config of the family `type` (GPT-2's, too) that sets what only another family
/// has, or says one number twice and differently, under GPT-2's key and a later family's.
Status check_mixture(const JsonRef& root, std::string_view type);

}  // namespace volta
