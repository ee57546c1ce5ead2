// A table of the model families of the Hugging Face hub that resemble Llama: their names and keys
// in config.json, and how their models differ. formats/model_families.h reads and writes the keys.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "formats/rope_config.h"
#include "nn/transformer_config.h"

namespace volta {

/// How the configs of a family describe which layers have a sliding window.
struct WindowKeys {
  bool any = false;              ///< The family has the key sliding_window.
  bool needs_switch = false;     ///< The window counts only with use_sliding_window.
  std::int64_t usual = 0;        ///< The window when the key is missing; 0: no window.
  bool by_layer = false;         ///< The family has layer_types, with one entry per layer.
  std::int64_t full_front = -1;  ///< Default of max_window_layers: the first layers have no window.
  std::int64_t full_every = 0;  ///< Without layer_types: every n-th has no window; 0: all have one.
};
/// Biases that the models of a family have or do not have.
struct FamilyBias {
  std::string_view key;  ///< If empty, no key says so, and `usual` holds for all models.
  bool TransformerConfig::* field;
  bool usual = false;  ///< What a missing key means.
};

/// A key of a family whose number is a field of TransformerConfig (a row of kModelNumbers).
struct FamilyNumber {
  std::string_view key;
  float TransformerConfig::* field;
  double usual = 1.0;     ///< The number when the key is missing; 0: the model does not have it.
  bool nullable = false;  ///< null means that the model does not have it.
};

/// How a family differs from Llama, and the values of missing keys, as in the Hugging Face classes.
/// A value of 0 means that it follows from the other values.
struct Family {
  std::string_view type;
  std::string_view architecture;  ///< The class in transformers.
  std::int64_t vocab_size = 0, dim = 0, ffn = 0, layers = 0, heads = 0, kv_heads = 0;
  std::int64_t head_dim = 0, context = 0;
  NormKind norm = NormKind::kRms;  ///< kLayer: with a bias.
  std::string_view eps_key = "rms_norm_eps";
  double eps = 1e-6;
  FfnKind ffn_kind = FfnKind::kGated;
  bool tied = false;
  std::string_view activation_key = "hidden_act", activation = "silu";
  /// Biases without a row do not exist. Rows with the same key are adjacent.
  std::span<const FamilyBias> biases{};
  WindowKeys windows{};
  RopeKeys rope{};
  WeightNaming naming = WeightNaming::kLlama;
  NormPlace norm_place = NormPlace::kBefore;
  bool qk_norm = false, qk_norm_whole = false;
  std::int64_t unrotated_every = 0;  ///< Without no_rope_layers: each n-th layer has no rotation.
  /// Gemma's parts: norms with 1 + weight, scaled embeddings, query_pre_attn_scalar.
  bool gemma = false;
  /// Keys of numbers that only some families have. A config of another family that has one of them
  /// mixes two families.
  std::span<const FamilyNumber> numbers{};
};
/// All families in the table; GPT-2 is not among them.
std::span<const Family> families();
/// Null for a type that is not in the table.
const Family* find_family(std::string_view type);

/// kInvalidFile for a config of the family `type` (GPT-2 included) that sets a key of another
/// family, or that gives one number twice with different values, under GPT-2's key and under the
/// key of later families.
Status check_mixture(const JsonRef& root, std::string_view type);
/// The same for keys of other families whose neutral value depends on the model: the numbers of
/// Family::numbers and no_rope_layers. A value with which `config`, read from `root`, computes
/// anyway is accepted: factors of 1, an attention_multiplier of 1 / sqrt(head_dim), and
/// no_rope_layers with 1 for every layer.
Status check_neutral_keys(const JsonRef& root, std::string_view type,
                          const TransformerConfig& config);

}  // namespace volta
