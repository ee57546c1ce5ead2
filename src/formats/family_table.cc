#include "formats/family_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace volta {
namespace {

constexpr WindowKeys kMistralWindows = {.any = true, .usual = 4096, .by_layer = true};
constexpr WindowKeys kQwenWindows = {
    .any = true, .needs_switch = true, .usual = 4096, .by_layer = true, .full_front = 28};
constexpr std::array kAttentionBiases = {
    FamilyBias{"attention_bias", &TransformerConfig::attention_bias},
    FamilyBias{"attention_bias", &TransformerConfig::attention_out_bias}};
constexpr std::array kAttentionMlpBiases = {
    FamilyBias{"attention_bias", &TransformerConfig::attention_bias},
    FamilyBias{"attention_bias", &TransformerConfig::attention_out_bias},
    FamilyBias{"mlp_bias", &TransformerConfig::ffn_bias}};
constexpr std::array kQkvBiases = {FamilyBias{"", &TransformerConfig::attention_bias, true}};
constexpr std::array kStarcoder2Biases = {
    FamilyBias{"use_bias", &TransformerConfig::attention_bias, true},
    FamilyBias{"use_bias", &TransformerConfig::attention_out_bias, true},
    FamilyBias{"use_bias", &TransformerConfig::ffn_bias, true}};
constexpr std::array kGemma2Numbers = {
    FamilyNumber{"attn_logit_softcapping", &TransformerConfig::attention_softcap, 50.0, true},
    FamilyNumber{"final_logit_softcapping", &TransformerConfig::logit_softcap, 30.0, true}};
constexpr std::array kGemma3Numbers = {
    FamilyNumber{"final_logit_softcapping", &TransformerConfig::logit_softcap, 0.0, true}};
constexpr std::array kGraniteNumbers = {
    FamilyNumber{"embedding_multiplier", &TransformerConfig::embedding_scale},
    FamilyNumber{"attention_multiplier", &TransformerConfig::attention_scale},
    FamilyNumber{"residual_multiplier", &TransformerConfig::residual_scale},
    FamilyNumber{"logits_scaling", &TransformerConfig::logit_divisor}};

constexpr std::array kFamilies = {
    Family{.type = "llama",
           .architecture = "LlamaForCausalLM",
           .vocab_size = 32000,
           .dim = 4096,
           .ffn = 11008,
           .layers = 32,
           .heads = 32,
           .kv_heads = 0,
           .head_dim = 0,
           .context = 2048,
           .biases = kAttentionMlpBiases},
    Family{.type = "mistral",
           .architecture = "MistralForCausalLM",
           .vocab_size = 32000,
           .dim = 4096,
           .ffn = 14336,
           .layers = 32,
           .heads = 32,
           .kv_heads = 8,
           .head_dim = 0,
           .context = 131072,
           .windows = kMistralWindows},
    Family{.type = "ministral",
           .architecture = "MinistralForCausalLM",
           .vocab_size = 32000,
           .dim = 4096,
           .ffn = 14336,
           .layers = 32,
           .heads = 32,
           .kv_heads = 8,
           .head_dim = 0,
           .context = 131072,
           .windows = kMistralWindows},
    Family{.type = "qwen2",
           .architecture = "Qwen2ForCausalLM",
           .vocab_size = 151936,
           .dim = 4096,
           .ffn = 22016,
           .layers = 32,
           .heads = 32,
           .kv_heads = 32,
           .head_dim = 0,
           .context = 32768,
           .biases = kQkvBiases,
           .windows = kQwenWindows},
    Family{.type = "qwen3",
           .architecture = "Qwen3ForCausalLM",
           .vocab_size = 151936,
           .dim = 4096,
           .ffn = 22016,
           .layers = 32,
           .heads = 32,
           .kv_heads = 32,
           .head_dim = 128,
           .context = 32768,
           .biases = kAttentionBiases,
           .windows = kQwenWindows,
           .qk_norm = true},
    Family{.type = "olmo2",
           .architecture = "Olmo2ForCausalLM",
           .vocab_size = 50304,
           .dim = 4096,
           .ffn = 11008,
           .layers = 32,
           .heads = 32,
           .kv_heads = 0,
           .head_dim = 0,
           .context = 2048,
           .eps = 1e-5,
           .biases = kAttentionBiases,
           .naming = WeightNaming::kGemma,
           .norm_place = NormPlace::kAfter,
           .qk_norm = true,
           .qk_norm_whole = true},
    Family{.type = "smollm3",
           .architecture = "SmolLM3ForCausalLM",
           .vocab_size = 128256,
           .dim = 2048,
           .ffn = 11008,
           .layers = 36,
           .heads = 16,
           .kv_heads = 4,
           .head_dim = 0,
           .context = 32768,
           .tied = true,
           .biases = kAttentionMlpBiases,
           .windows = {.any = true, .needs_switch = true, .by_layer = true},
           .rope = {.theta = 2000000.0},
           .unrotated_every = 4},
    Family{.type = "phi3",
           .architecture = "Phi3ForCausalLM",
           .vocab_size = 32064,
           .dim = 3072,
           .ffn = 8192,
           .layers = 32,
           .heads = 32,
           .kv_heads = 0,
           .head_dim = 0,
           .context = 4096,
           .eps = 1e-5,
           .windows = {.any = true},
           .rope = {.original = 4096, .partial = true, .longrope = true},
           .naming = WeightNaming::kPhi3},
    Family{.type = "gemma2",
           .architecture = "Gemma2ForCausalLM",
           .vocab_size = 256000,
           .dim = 2304,
           .ffn = 9216,
           .layers = 26,
           .heads = 8,
           .kv_heads = 4,
           .head_dim = 256,
           .context = 8192,
           .tied = true,
           .activation_key = "hidden_activation",
           .activation = "gelu_pytorch_tanh",
           .biases = kAttentionBiases,
           .windows = {.any = true, .usual = 4096, .by_layer = true, .full_every = 2},
           .naming = WeightNaming::kGemma,
           .norm_place = NormPlace::kAround,
           .gemma = true,
           .numbers = kGemma2Numbers},
    Family{.type = "gemma3_text",
           .architecture = "Gemma3ForCausalLM",
           .vocab_size = 262208,
           .dim = 2304,
           .ffn = 9216,
           .layers = 26,
           .heads = 8,
           .kv_heads = 4,
           .head_dim = 256,
           .context = 131072,
           .tied = true,
           .activation_key = "hidden_activation",
           .activation = "gelu_pytorch_tanh",
           .biases = kAttentionBiases,
           .windows = {.any = true, .usual = 4096, .by_layer = true, .full_every = 6},
           .rope = {.theta = 1000000.0, .local_theta = 10000.0, .context_is_final = true},
           .naming = WeightNaming::kGemma,
           .norm_place = NormPlace::kAround,
           .qk_norm = true,
           .gemma = true,
           .numbers = kGemma3Numbers},
    Family{.type = "granite",
           .architecture = "GraniteForCausalLM",
           .vocab_size = 32000,
           .dim = 4096,
           .ffn = 11008,
           .layers = 32,
           .heads = 32,
           .kv_heads = 0,
           .head_dim = 0,
           .context = 2048,
           .biases = kAttentionMlpBiases,
           .numbers = kGraniteNumbers},
    Family{.type = "starcoder2",
           .architecture = "Starcoder2ForCausalLM",
           .vocab_size = 49152,
           .dim = 3072,
           .ffn = 12288,
           .layers = 30,
           .heads = 24,
           .kv_heads = 2,
           .head_dim = 0,
           .context = 4096,
           .norm = NormKind::kLayer,
           .eps_key = "norm_epsilon",
           .eps = 1e-5,
           .ffn_kind = FfnKind::kMlp,
           .tied = true,
           .activation = "gelu_pytorch_tanh",
           .biases = kStarcoder2Biases,
           .windows = {.any = true},
           .naming = WeightNaming::kStarcoder2},
};

// Keys of config.json that change what a model computes and that only some families define. The
// keys in Family::numbers and no_rope_layers belong to them, too; check_neutral_keys() checks
// those. If a config of another family sets such a key, it mixes two families; it is refused,
// because its meaning is unclear. Biases and windows are not here: transformers ignores their keys
// in families without them, and weights of a bias that the family does not have are refused when
// they are read.
struct OwnKey {
  std::string_view key;
  std::array<std::string_view, 2> types{};  // None: families that Volta does not run.
  std::string_view neutral{};               // A value that changes nothing in other families.
};
constexpr std::array kOwnKeys = {
    OwnKey{"query_pre_attn_scalar", {"gemma2", "gemma3_text"}},
    OwnKey{"hidden_activation", {"gemma2", "gemma3_text"}},
    OwnKey{"use_bidirectional_attention", {"gemma2", "gemma3_text"}, "false"},
    OwnKey{"rope_local_base_freq", {"gemma3_text"}},
    OwnKey{"sliding_window_pattern", {"gemma3_text"}},
    OwnKey{"no_rope_layer_interval", {"smollm3"}},
    OwnKey{"scale_attn_weights", {"gpt2"}, "true"},
    OwnKey{"scale_attn_by_inverse_layer_idx", {"gpt2"}, "false"},
    OwnKey{"add_cross_attention", {"gpt2"}, "false"},
    // Falcon, BLOOM, MPT.
    OwnKey{"alibi", {}, "false"},
    OwnKey{"parallel_attn", {}, "false"},
    OwnKey{"apply_residual_connection_post_layernorm", {}, "false"},
    // GPT-NeoX, StableLM, Phi.
    OwnKey{"use_parallel_residual", {}, "false"},
    OwnKey{"rotary_pct", {}, "1"},
    OwnKey{"qk_layernorm", {}, "false"},
    OwnKey{"lm_head_bias", {}, "false"},
    // Cohere, OLMo, OLMoE, DBRX, MiniCPM.
    OwnKey{"use_qk_norm", {}, "false"},
    OwnKey{"logit_scale", {}, "1"},
    OwnKey{"clip_qkv"},
    OwnKey{"scale_emb", {}, "1"},
    OwnKey{"scale_depth"},
};
// Two keys for the same number: GPT-2's and that of later families.
struct KeyPair {
  std::string_view gpt2, later;
};
constexpr std::array kKeyPairs = {
    KeyPair{"n_embd", "hidden_size"},         KeyPair{"n_layer", "num_hidden_layers"},
    KeyPair{"n_head", "num_attention_heads"}, KeyPair{"n_positions", "max_position_embeddings"},
    KeyPair{"n_inner", "intermediate_size"},  KeyPair{"layer_norm_epsilon", "rms_norm_eps"}};

// Fails if the config sets a key that only the families `owners` have.
Status check_owner(const JsonRef& root, std::string_view type, std::string_view key,
                   std::span<const std::string_view> owners, std::string_view neutral = {}) {
  const JsonValue* value = root.node().find(key);
  if (value == nullptr || value->is_null() || value->leaf_text() == neutral) return {};
  if (std::ranges::find(owners, type) != owners.end()) return {};
  if (owners.empty()) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: '{}' is a key of families that Volta does not run, not of '{}'; "
                            "if it is there by mistake, remove it",
                            root.path(), key, type));
  }
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: '{}' is a key of {}, not of '{}'; the config mixes the keys of two "
                          "families: set model_type to the one that the weights belong to, or "
                          "remove the key",
                          root.path(), key, fmt::join(owners, " and "), type));
}

// The families whose row lists a number under this key.
std::vector<std::string_view> owners_of_number(std::string_view key) {
  std::vector<std::string_view> owners;
  for (const Family& family : kFamilies) {
    const bool owns =
        std::ranges::find(family.numbers, key, &FamilyNumber::key) != family.numbers.end();
    if (owns) owners.push_back(family.type);
  }
  return owners;
}

// Whether a key of another family has the value that `config` computes with anyway.
bool is_neutral(const FamilyNumber& number, float value, const TransformerConfig& config) {
  const TransformerConfig none;
  if (number.field == &TransformerConfig::attention_scale) {
    const auto usual = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
    return value == usual && config.attention_scaled && !config.attention_scaled_by_layer &&
           config.query_scalar == none.query_scalar;
  }
  const bool factor = number.field == &TransformerConfig::embedding_scale ||
                      number.field == &TransformerConfig::residual_scale ||
                      number.field == &TransformerConfig::logit_divisor;
  const bool scaled =
      number.field == &TransformerConfig::embedding_scale && config.embedding_scaled;
  return factor && value == 1.0f && !scaled;
}

// Whether no_rope_layers says that every layer has rotary positions, and `config` has them.
bool rotates_everywhere(const JsonValue& list, const TransformerConfig& config) {
  const JsonValue::Array* layers = list.if_array();
  return layers != nullptr && config.position == PositionKind::kRotary &&
         std::ssize(*layers) == config.layers &&
         std::ranges::all_of(*layers, [](const JsonValue& rotates) {
           const std::int64_t* number = rotates.if_int();
           return number != nullptr && *number == 1;
         });
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view type) {
  const auto* found = std::ranges::find(kFamilies, type, &Family::type);
  return found == kFamilies.end() ? nullptr : found;
}

Status check_mixture(const JsonRef& root, std::string_view type) {
  for (const OwnKey& own : kOwnKeys) {
    const std::size_t owners = own.types[0].empty() ? 0 : own.types[1].empty() ? 1 : 2;
    VOLTA_TRY(check_owner(root, type, own.key, std::span(own.types).first(owners), own.neutral));
  }
  for (const KeyPair& pair : kKeyPairs) {
    const JsonValue *a = root.node().find(pair.gpt2), *b = root.node().find(pair.later);
    if (a == nullptr || b == nullptr || a->is_null() || b->is_null()) continue;
    if (a->leaf_text() == b->leaf_text()) continue;
    return fail(
        ErrorCode::kInvalidFile,
        fmt::format("{}: {} is {} and {} is {}; the config mixes the keys of two families: "
                    "keep those of '{}'",
                    root.path(), pair.gpt2, a->leaf_text(), pair.later, b->leaf_text(), type));
  }
  return {};
}

Status check_neutral_keys(const JsonRef& root, std::string_view type,
                          const TransformerConfig& config) {
  for (const Family& family : kFamilies) {
    for (const FamilyNumber& number : family.numbers) {
      const auto value = root.get_float(number.key);
      if (value && is_neutral(number, static_cast<float>(*value), config)) continue;
      VOLTA_TRY(check_owner(root, type, number.key, owners_of_number(number.key)));
    }
  }
  static constexpr std::string_view kUnrotated = "no_rope_layers", kOwner = "smollm3";
  const JsonValue* list = root.node().find(kUnrotated);
  if (list != nullptr && rotates_everywhere(*list, config)) return {};
  return check_owner(root, type, kUnrotated, std::span(&kOwner, 1));
}

}  // namespace volta
