#include "formats/model_families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "formats/family_table.h"
#include "formats/model_config.h"
#include "formats/rope_config.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxLayers = 1 << 16;  // Some lists have one element per layer.

// CLIP's approximation of the GELU is x sigmoid(1.702 x) (Hendrycks & Gimpel 2016).
constexpr float kQuickGelu = 1.702f;

struct ActivationName {
  std::string_view name;
  Activation activation;
  float scale = 1.0f;
};
// The first name of each activation is the one that is written.
constexpr std::array kActivations = {
    ActivationName{"gelu", Activation::kGelu},
    ActivationName{"gelu_python", Activation::kGelu},
    ActivationName{"gelu_new", Activation::kGeluTanh},
    ActivationName{"gelu_fast", Activation::kGeluTanh},
    ActivationName{"gelu_accurate", Activation::kGeluTanh},
    ActivationName{"gelu_pytorch_tanh", Activation::kGeluTanh},
    ActivationName{"gelu_python_tanh", Activation::kGeluTanh},
    ActivationName{"relu", Activation::kRelu},
    ActivationName{"silu", Activation::kSilu},
    ActivationName{"swish", Activation::kSilu},
    ActivationName{"quick_gelu", Activation::kSilu, kQuickGelu},
};

// Reads a size under GPT-2's own key or under the key of later families.
Result<std::int64_t> get_size(const JsonRef& root, std::string_view key, std::string_view later,
                              std::int64_t fallback) {
  VOLTA_TRY(const std::int64_t other, root.get_int_or(later, fallback, 1, kMaxPlausibleCount));
  return root.get_int_or(key, other, 1, kMaxPlausibleCount);
}

Result<TransformerConfig> parse_gpt2(const JsonRef& root) {
  TransformerConfig c;
  VOLTA_TRY(c.vocab_size, root.get_int_or("vocab_size", 50257, 1, kMaxPlausibleCount));
  VOLTA_TRY(c.context, get_size(root, "n_positions", "max_position_embeddings", 1024));
  VOLTA_TRY(c.dim, get_size(root, "n_embd", "hidden_size", 768));
  VOLTA_TRY(c.layers, get_size(root, "n_layer", "num_hidden_layers", 12));
  VOLTA_TRY(c.heads, get_size(root, "n_head", "num_attention_heads", 12));
  VOLTA_TRY(c.ffn, root.get_int_or("n_inner", 4 * c.dim, 1, kMaxPlausibleCount));
  VOLTA_TRY(const double eps, root.get_float_or("layer_norm_epsilon", 1e-5));
  VOLTA_TRY(c.tied_output, root.get_bool_or("tie_word_embeddings", true));
  VOLTA_TRY(parse_activation(root, "activation_function", "gelu_new", c));
  VOLTA_TRY(c.attention_scaled, root.get_bool_or("scale_attn_weights", true));
  VOLTA_TRY(c.attention_scaled_by_layer,
            root.get_bool_or("scale_attn_by_inverse_layer_idx", false));
  VOLTA_TRY(const bool cross, root.get_bool_or("add_cross_attention", false));
  if (cross) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: add_cross_attention; Volta runs decoders alone", root.path()));
  }
  if (c.dim % c.heads != 0) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: n_head {} does not divide n_embd {}",
                                                     root.path(), c.heads, c.dim));
  }
  c.norm_eps = static_cast<float>(eps);
  c.kv_heads = c.heads;
  c.head_dim = c.dim / c.heads;
  c.norm_bias = c.attention_bias = c.attention_out_bias = c.ffn_bias = true;
  return c;
}

// The size of the sliding window; 0, which means no window, when the key is null.
Result<std::int32_t> parse_window(const JsonRef& root, const WindowKeys& keys) {
  if (!keys.any) return 0;
  if (keys.needs_switch) {
    VOLTA_TRY(const bool sliding, root.get_bool_or("use_sliding_window", false));
    if (!sliding) return 0;
  }
  const JsonValue* given = root.node().find("sliding_window");
  if (given == nullptr ? keys.usual == 0 : given->is_null()) return 0;
  VOLTA_TRY(const std::int64_t window, root.get_int_or("sliding_window", keys.usual, 1, 1 << 30));
  return static_cast<std::int32_t>(window);
}

// Whether each layer has a sliding window, from layer_types; nullopt without that key.
Result<std::optional<std::vector<bool>>> parse_layer_types(const JsonRef& root,
                                                           std::int64_t layers) {
  VOLTA_TRY(const auto types, root.optional_member("layer_types"));
  if (!types) return std::nullopt;
  VOLTA_TRY(const auto list, types->elements());
  if (std::ssize(list) != layers) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {} types for {} layers", types->path(), list.size(), layers));
  }
  std::vector<bool> slides;
  for (const JsonRef& type : list) {
    VOLTA_TRY(const std::string word, type.as_string());
    const bool full = word == "full_attention" || word == "attention";
    if (!full && word != "sliding_attention") {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: layer type '{}'; Volta has full_attention and "
                              "sliding_attention",
                              type.path(), word));
    }
    slides.push_back(!full);
  }
  return slides;
}

// Which layers have a sliding window when layer_types is missing.
Result<std::vector<bool>> usual_layer_types(const JsonRef& root, const Family& family,
                                            const TransformerConfig& c) {
  const WindowKeys& keys = family.windows;
  std::int64_t front = 0, every = keys.full_every;
  if (keys.full_front >= 0) {
    VOLTA_TRY(front, root.get_int_or("max_window_layers", keys.full_front, 0, kMaxPlausibleCount));
  }
  if (family.rope.local_theta > 0.0) {
    VOLTA_TRY(every, root.get_int_or("sliding_window_pattern", every, 1, kMaxPlausibleCount));
  }
  std::vector<bool> slides;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const bool full = every > 0 && (layer + 1) % every == 0;
    const bool rotates = family.unrotated_every == 0 || c.layer_rotates(layer);
    // In SmolLM 3, the layers with rotary positions attend to the whole context.
    slides.push_back(layer >= front && !full && (family.unrotated_every == 0 || !rotates));
  }
  return slides;
}

// Sets the window and the layers without it.
Status parse_windows(const JsonRef& root, const Family& family, TransformerConfig& c) {
  VOLTA_TRY(c.window, parse_window(root, family.windows));
  if (!family.windows.by_layer) return {};
  VOLTA_TRY(auto slides, parse_layer_types(root, c.layers));
  if (!slides) {
    if (c.window == 0) return {};
    VOLTA_TRY(slides, usual_layer_types(root, family, c));
  }
  const auto sliding = std::ranges::count(*slides, true);
  if (sliding > 0 && c.window == 0) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: layer_types has sliding_attention, but no sliding_window is set",
                            root.path()));
  }
  if (sliding == 0) c.window = 0;
  for (std::int64_t layer = 0; sliding > 0 && layer < c.layers; ++layer) {
    if (!(*slides)[static_cast<std::size_t>(layer)]) c.full_layers.push_back(layer);
  }
  return {};
}

// Sets the numbers of heads and head_dim. A missing num_key_value_heads means the family's default
// if that divides the number of heads; null means as many as heads.
Status parse_heads(const JsonRef& root, const Family& family, TransformerConfig& c) {
  VOLTA_TRY(c.heads, root.get_int_or("num_attention_heads", family.heads, 1, kMaxPlausibleCount));
  const bool given = root.node().find("num_key_value_heads") != nullptr;
  const bool usual = !given && family.kv_heads > 0 && c.heads % family.kv_heads == 0;
  VOLTA_TRY(c.kv_heads, root.get_int_or("num_key_value_heads", usual ? family.kv_heads : c.heads, 1,
                                        kMaxPlausibleCount));
  const std::int64_t head_dim = family.head_dim > 0 ? family.head_dim : c.dim / c.heads;
  VOLTA_TRY(c.head_dim, root.get_int_or("head_dim", std::max<std::int64_t>(head_dim, 1), 1,
                                        kMaxPlausibleCount));
  return {};
}

Status parse_biases(const JsonRef& root, const Family& family, TransformerConfig& c) {
  c.norm_bias = family.norm == NormKind::kLayer;
  for (const FamilyBias& bias : family.biases) {
    c.*bias.field = bias.usual;
    if (bias.key.empty()) continue;
    VOLTA_TRY(c.*bias.field, root.get_bool_or(bias.key, bias.usual));
  }
  return {};
}

// Sets the layers without rotary positions: no_rope_layers has 0 for them and 1 for the others.
Status parse_unrotated(const JsonRef& root, const Family& family, TransformerConfig& c) {
  if (family.unrotated_every == 0) return {};
  VOLTA_TRY(const auto list, root.optional_member("no_rope_layers"));
  VOLTA_TRY(
      const std::int64_t every,
      root.get_int_or("no_rope_layer_interval", family.unrotated_every, 1, kMaxPlausibleCount));
  if (!list) {
    for (std::int64_t layer = every - 1; layer < c.layers; layer += every) {
      c.unrotated_layers.push_back(layer);
    }
    return {};
  }
  VOLTA_TRY(const auto elements, list->elements());
  if (std::ssize(elements) != c.layers) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {} numbers for {} layers", list->path(),
                                                     elements.size(), c.layers));
  }
  for (std::int64_t layer = 0; const JsonRef& element : elements) {
    VOLTA_TRY(const std::int64_t rotates, element.as_int(0, 1));
    if (rotates == 0) c.unrotated_layers.push_back(layer);
    ++layer;
  }
  return {};
}

// Reads the numbers that the family's row lists. 0 stands for no number in TransformerConfig, so a
// key may not have it.
Status parse_numbers(const JsonRef& root, const Family& family, TransformerConfig& c) {
  for (const FamilyNumber& number : family.numbers) {
    const JsonValue* given = root.node().find(number.key);
    const bool missing = given == nullptr || given->is_null();
    if (missing && ((given != nullptr && number.nullable) || number.usual == 0.0)) continue;
    VOLTA_TRY(const double value, root.get_float_or(number.key, number.usual));
    c.*number.field = static_cast<float>(value);
    if (c.*number.field == 0.0f) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}: {} is {}; it must be positive{}", root.path(), number.key, value,
                              number.nullable ? ", or null for none" : ""));
    }
  }
  return {};
}

// Reads the keys that only Gemma has.
Status parse_gemma(const JsonRef& root, const Family& family, TransformerConfig& c) {
  if (!family.gemma) return {};
  c.norm_plus_one = c.embedding_scaled = true;
  VOLTA_TRY(const bool both_ways, root.get_bool_or("use_bidirectional_attention", false));
  if (both_ways) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: use_bidirectional_attention; Volta runs decoders, whose tokens see "
                    "earlier ones only",
                    root.path()));
  }
  constexpr double kUsualScalar = 256.0;
  VOLTA_TRY(const double scalar, root.get_float_or("query_pre_attn_scalar", kUsualScalar));
  // The usual value, head_dim, has one representation only: 0.
  c.query_scalar = scalar == static_cast<double>(c.head_dim) ? 0.0f : static_cast<float>(scalar);
  if (!(scalar > 0.0)) {
    return fail(
        ErrorCode::kInvalidFile,
        fmt::format("{}: query_pre_attn_scalar is {}; it must be positive", root.path(), scalar));
  }
  return {};
}

Result<TransformerConfig> parse_llama(const JsonRef& root, const Family& family) {
  TransformerConfig c;
  c.naming = family.naming;
  c.position = PositionKind::kRotary;
  c.norm = family.norm;
  c.norm_place = family.norm_place;
  c.ffn_kind = family.ffn_kind;
  c.qk_norm = family.qk_norm;
  c.qk_norm_whole = family.qk_norm_whole;
  VOLTA_TRY(c.vocab_size, root.get_int_or("vocab_size", family.vocab_size, 1, kMaxPlausibleCount));
  VOLTA_TRY(c.dim, root.get_int_or("hidden_size", family.dim, 1, kMaxPlausibleCount));
  VOLTA_TRY(c.layers, root.get_int_or("num_hidden_layers", family.layers, 1, kMaxLayers));
  VOLTA_TRY(parse_heads(root, family, c));
  VOLTA_TRY(c.ffn, root.get_int_or("intermediate_size", family.ffn, 1, kMaxPlausibleCount));
  VOLTA_TRY(const double eps, root.get_float_or(family.eps_key, family.eps));
  c.norm_eps = static_cast<float>(eps);
  VOLTA_TRY(c.tied_output, root.get_bool_or("tie_word_embeddings", family.tied));
  VOLTA_TRY(parse_activation(root, family.activation_key, family.activation, c));
  VOLTA_TRY(parse_biases(root, family, c));
  VOLTA_TRY(parse_unrotated(root, family, c));
  VOLTA_TRY(parse_windows(root, family, c));
  VOLTA_TRY(parse_gemma(root, family, c));
  VOLTA_TRY(parse_numbers(root, family, c));
  VOLTA_TRY(const std::int64_t longest,
            root.get_int_or("max_position_embeddings", family.context, 1, kMaxPlausibleCount));
  VOLTA_TRY(parse_rope(root, longest, family.rope, c));
  return c;
}

void write_gpt2(JsonWriter& json, const TransformerConfig& c) {
  json.field("activation_function", activation_name(c));
  json.field("n_embd", c.dim).field("n_head", c.heads).field("n_inner", c.ffn);
  json.field("n_layer", c.layers).field("n_positions", c.context);
  json.field("scale_attn_weights", c.attention_scaled);
  json.field("scale_attn_by_inverse_layer_idx", c.attention_scaled_by_layer);
  json.field("layer_norm_epsilon", c.norm_eps).field("initializer_range", c.init_std);
  json.field("attn_pdrop", 0.0).field("embd_pdrop", 0.0).field("resid_pdrop", 0.0);
}

// Qwen's older key for layer_types, max_window_layers, is the number of layers at the front without
// a window.
void write_windows(JsonWriter& json, const TransformerConfig& c, const WindowKeys& keys,
                   bool layer_types) {
  json.key("sliding_window");
  c.window == 0 ? json.null() : json.value(c.window);
  if (!layer_types) return;
  json.key("layer_types").begin_array();
  std::int64_t front = 0;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const bool full = c.layer_window(layer) == 0;
    if (full && front == layer) ++front;
    json.value(full ? "full_attention" : "sliding_attention");
  }
  json.end_array();
  if (keys.full_front >= 0) json.field("max_window_layers", front);
  if (keys.needs_switch) json.field("use_sliding_window", c.window != 0);
}

void write_numbers(JsonWriter& json, const TransformerConfig& c, const Family& family) {
  for (const FamilyNumber& number : family.numbers) {
    const float value = c.*number.field;
    json.key(number.key);
    value == 0.0f && number.nullable ? json.null() : json.value(value);
  }
}

void write_unrotated(JsonWriter& json, const TransformerConfig& c) {
  json.key("no_rope_layers").begin_array();
  for (std::int64_t layer = 0; layer < c.layers; ++layer)
    json.value(c.layer_rotates(layer) ? 1 : 0);
  json.end_array();
}

void write_llama(JsonWriter& json, const TransformerConfig& c, const Family& family) {
  json.field("hidden_size", c.dim).field("intermediate_size", c.ffn);
  json.field("num_hidden_layers", c.layers).field("num_attention_heads", c.heads);
  json.field("num_key_value_heads", c.kv_heads).field("head_dim", c.head_dim);
  json.field(family.eps_key, c.norm_eps).field(family.activation_key, activation_name(c));
  json.field("initializer_range", c.init_std);
  write_rope(json, c);
  std::string_view written;
  for (const FamilyBias& bias : family.biases) {
    if (!bias.key.empty() && bias.key != written) json.field(bias.key, c.*bias.field);
    written = bias.key;
  }
  // Mistral's folders have no layer_types; Ministral's have them.
  const bool layer_types = family.windows.by_layer && family.type != "mistral";
  if (family.windows.any) write_windows(json, c, family.windows, layer_types);
  if (family.unrotated_every > 0) write_unrotated(json, c);
  if (family.gemma) {
    json.field("query_pre_attn_scalar",
               c.query_scalar == 0.0f ? static_cast<float>(c.head_dim) : c.query_scalar);
  }
  write_numbers(json, c, family);
}

// Whether a config of the family can express all of `config`: writing and reading keep it.
bool says_all(const Family& family, const TransformerConfig& config) {
  JsonWriter json;
  json.begin_object().field("vocab_size", config.vocab_size);
  json.field("tie_word_embeddings", config.tied_output);
  write_llama(json, config, family);
  json.end_object();
  const auto text = parse_json(std::move(json).take(), family.type);
  if (!text) return false;
  auto read = parse_llama(JsonRef(*text, family.type), family);
  if (!read) return false;
  read->init_std = config.init_std;  // init_std does not matter for a trained model.
  return *read == config;
}

// The family for a model with Llama's tensor names and no part that only later families have.
std::string_view llama_family(const TransformerConfig& c) {
  if (c.norm != NormKind::kRms || c.ffn_kind != FfnKind::kGated || c.attention_scaled_by_layer ||
      c.rotary_dim != 0 || !c.attention_scaled) {
    return "volta";
  }
  const bool biases = c.attention_bias || c.attention_out_bias || c.ffn_bias;
  if (c.qk_norm) {
    return c.attention_bias == c.attention_out_bias && !c.ffn_bias ? "qwen3" : "volta";
  }
  // transformers requires Llama's width to be a multiple of the number of heads, even with
  // head_dim.
  if (c.window == 0 && c.attention_bias == c.attention_out_bias && c.dim % c.heads == 0) {
    return "llama";
  }
  if (!biases) return c.full_layers.empty() ? "mistral" : "ministral";
  return c.attention_bias && !c.attention_out_bias && !c.ffn_bias ? "qwen2" : "volta";
}

// Whether a model has no part that only families later than Llama and GPT-2 have.
bool has_early_parts(const TransformerConfig& c) {
  const bool numbers = std::ranges::any_of(kModelNumbers, [&](const ModelNumber& number) {
    return c.*number.field != value_without(number.field);
  });
  return !numbers && c.norm_place == NormPlace::kBefore && !c.norm_plus_one && !c.qk_norm_whole &&
         !c.embedding_scaled && c.rope_local_theta == 0.0f && c.unrotated_layers.empty() &&
         c.rope_scaling.kind != RopeKind::kLongrope;
}

}  // namespace

Status parse_activation(const JsonRef& root, std::string_view key, std::string_view fallback,
                        TransformerConfig& c) {
  VOLTA_TRY(const std::string name, root.get_string_or(key, fallback));
  for (const ActivationName& known : kActivations) {
    if (known.name != name) continue;
    c.activation = known.activation;
    c.activation_scale = known.scale;
    return {};
  }
  std::vector<std::string_view> names;
  for (const ActivationName& known : kActivations) names.push_back(known.name);
  return fail(ErrorCode::kUnsupported, fmt::format("{}: {}: activation '{}'; Volta has {}",
                                                   root.path(), key, name, fmt::join(names, ", ")));
}

std::string_view activation_name(const TransformerConfig& c) {
  for (const ActivationName& known : kActivations) {
    if (known.activation == c.activation && known.scale == c.activation_scale) return known.name;
  }
  return {};
}

std::string_view model_family(const TransformerConfig& c) {
  if (activation_name(c).empty()) return "volta";
  if (c.position == PositionKind::kLearned) {
    const bool plain = c.naming == WeightNaming::kGpt2 && c.norm == NormKind::kLayer &&
                       c.ffn_kind == FfnKind::kMlp && !c.qk_norm && c.kv_heads == c.heads &&
                       c.head_dim * c.heads == c.dim && c.window == 0 && has_early_parts(c);
    return plain ? "gpt2" : "volta";
  }
  std::string_view type = "volta";
  if (c.naming == WeightNaming::kLlama && has_early_parts(c)) type = llama_family(c);
  for (const Family& family : families()) {
    if (type != "volta") break;
    const bool odd_llama = family.type == "llama" && c.dim % c.heads != 0;  // See llama_family().
    if (family.naming == c.naming && !odd_llama && says_all(family, c)) type = family.type;
  }
  return type;
}

std::string_view family_class(std::string_view type) {
  if (type == "gpt2") return "GPT2LMHeadModel";
  const Family* const family = find_family(type);
  return family == nullptr ? "VoltaForCausalLM" : family->architecture;
}

Result<TransformerConfig> parse_family(const JsonRef& root, std::string_view type) {
  const Family* const family = find_family(type);
  if (type == "gpt2" || family != nullptr) {
    VOLTA_TRY(check_mixture(root, type));
    VOLTA_TRY(TransformerConfig config,
              family == nullptr ? parse_gpt2(root) : parse_llama(root, *family));
    VOLTA_TRY(check_neutral_keys(root, type, config));
    return config;
  }
  if (type == "gemma3") {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: architecture 'gemma3' reads pictures, too; Volta runs Gemma 3 from "
                    "folders of text alone, whose model_type is gemma3_text",
                    root.path()));
  }
  std::vector<std::string_view> types = {"gpt2"};
  for (const Family& known : families()) types.push_back(known.type);
  return fail(ErrorCode::kUnsupported, fmt::format("{}: architecture '{}'; Volta runs {}",
                                                   root.path(), type, fmt::join(types, ", ")));
}

void write_family(JsonWriter& json, const TransformerConfig& config, std::string_view type) {
  if (type == "gpt2") return write_gpt2(json, config);
  if (const Family* const family = find_family(type)) write_llama(json, config, *family);
}

}  // namespace volta
