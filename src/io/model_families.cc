#include "io/model_families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/rope_config.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;  // validate() knows the real limits.
constexpr std::int64_t kMaxLayers = 1 << 16;              // Lists have as many elements.

// CLIP's approximation of the GELU is x sigmoid(1.702 x) (Hendrycks & Gimpel 2016).
constexpr float kQuickGelu = 1.702f;

struct ActivationName {
  std::string_view name;
  Activation activation;
  float scale = 1.0f;
};
// The first name of each activation is the one written.
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

// What a key means when it is missing, as the Hugging Face classes have it. Where 0 is written the
// value follows from the others.
struct LlamaDefaults {
  std::string_view type;
  std::int64_t vocab_size, dim, ffn, kv_heads, head_dim, context;
};
constexpr std::array kLlamaDefaults = {
    LlamaDefaults{"llama", 32000, 4096, 11008, 0, 0, 2048},
    LlamaDefaults{"mistral", 32000, 4096, 14336, 8, 0, 131072},
    LlamaDefaults{"ministral", 32000, 4096, 14336, 8, 0, 131072},
    LlamaDefaults{"qwen2", 151936, 4096, 22016, 32, 0, 32768},
    LlamaDefaults{"qwen3", 151936, 4096, 22016, 32, 128, 32768},
};
constexpr std::int64_t kDefaultLayers = 32, kDefaultHeads = 32, kDefaultWindow = 4096;

const LlamaDefaults* find_defaults(std::string_view type) {
  const auto* found = std::ranges::find(kLlamaDefaults, type, &LlamaDefaults::type);
  return found == kLlamaDefaults.end() ? nullptr : found;
}

// A size under GPT-2's own key or the one that later families have.
Result<std::int64_t> get_size(const JsonRef& root, std::string_view key, std::string_view later,
                              std::int64_t fallback) {
  VOLTA_TRY(const std::int64_t other, root.get_int_or(later, fallback, 1, kMaxSize));
  return root.get_int_or(key, other, 1, kMaxSize);
}

Result<TransformerConfig> parse_gpt2(const JsonRef& root) {
  TransformerConfig c;
  VOLTA_TRY(c.vocab_size, root.get_int_or("vocab_size", 50257, 1, kMaxSize));
  VOLTA_TRY(c.context, get_size(root, "n_positions", "max_position_embeddings", 1024));
  VOLTA_TRY(c.dim, get_size(root, "n_embd", "hidden_size", 768));
  VOLTA_TRY(c.layers, get_size(root, "n_layer", "num_hidden_layers", 12));
  VOLTA_TRY(c.heads, get_size(root, "n_head", "num_attention_heads", 12));
  VOLTA_TRY(c.ffn, root.get_int_or("n_inner", 4 * c.dim, 1, kMaxSize));
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

// The window of the layers that slide: none when the key is null.
Result<std::int32_t> parse_window(const JsonRef& root, std::string_view type) {
  if (type == "llama") return 0;
  if (type.starts_with("qwen")) {
    VOLTA_TRY(const bool sliding, root.get_bool_or("use_sliding_window", false));
    if (!sliding) return 0;
  }
  const JsonValue* given = root.node().find("sliding_window");
  if (given != nullptr && given->is_null()) return 0;
  VOLTA_TRY(const std::int64_t window,
            root.get_int_or("sliding_window", kDefaultWindow, 1, 1 << 30));
  return static_cast<std::int32_t>(window);
}

// Whether each layer slides, from layer_types; nothing without that key.
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

// Which layers slide: layer_types says it for each, Qwen's older key how many at the front do not.
Status parse_windows(const JsonRef& root, std::string_view type, TransformerConfig& c) {
  VOLTA_TRY(c.window, parse_window(root, type));
  if (type == "llama") return {};
  VOLTA_TRY(auto slides, parse_layer_types(root, c.layers));
  if (!slides) {
    const std::int64_t usual = type.starts_with("qwen") ? 28 : 0;
    VOLTA_TRY(const std::int64_t full, root.get_int_or("max_window_layers", usual, 0, kMaxSize));
    const std::int64_t first = type.starts_with("qwen") ? full : 0;
    if (c.window == 0 || first >= c.layers) {
      c.window = 0;
      return {};
    }
    for (std::int64_t layer = 0; layer < first; ++layer) c.full_layers.push_back(layer);
    return {};
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

// Heads and what one is wide. A missing kv_heads is the family's where that can be, null is heads.
Status parse_heads(const JsonRef& root, const LlamaDefaults& family, TransformerConfig& c) {
  VOLTA_TRY(c.heads, root.get_int_or("num_attention_heads", kDefaultHeads, 1, kMaxSize));
  const bool given = root.node().find("num_key_value_heads") != nullptr;
  const bool usual = !given && family.kv_heads > 0 && c.heads % family.kv_heads == 0;
  VOLTA_TRY(c.kv_heads,
            root.get_int_or("num_key_value_heads", usual ? family.kv_heads : c.heads, 1, kMaxSize));
  const std::int64_t head_dim = family.head_dim > 0 ? family.head_dim : c.dim / c.heads;
  VOLTA_TRY(c.head_dim,
            root.get_int_or("head_dim", std::max<std::int64_t>(head_dim, 1), 1, kMaxSize));
  return {};
}

Result<TransformerConfig> parse_llama(const JsonRef& root, const LlamaDefaults& family) {
  const std::string_view type = family.type;
  TransformerConfig c;
  c.position = PositionKind::kRotary;
  c.norm = NormKind::kRms;
  c.ffn_kind = FfnKind::kGated;
  VOLTA_TRY(c.vocab_size, root.get_int_or("vocab_size", family.vocab_size, 1, kMaxSize));
  VOLTA_TRY(c.dim, root.get_int_or("hidden_size", family.dim, 1, kMaxSize));
  VOLTA_TRY(c.layers, root.get_int_or("num_hidden_layers", kDefaultLayers, 1, kMaxLayers));
  VOLTA_TRY(parse_heads(root, family, c));
  VOLTA_TRY(c.ffn, root.get_int_or("intermediate_size", family.ffn, 1, kMaxSize));
  VOLTA_TRY(const double eps, root.get_float_or("rms_norm_eps", 1e-6));
  c.norm_eps = static_cast<float>(eps);
  VOLTA_TRY(c.tied_output, root.get_bool_or("tie_word_embeddings", false));
  VOLTA_TRY(parse_activation(root, "hidden_act", "silu", c));
  // Each family reads only the keys it knows.
  if (type == "llama" || type == "qwen3") {
    VOLTA_TRY(c.attention_bias, root.get_bool_or("attention_bias", false));
    c.attention_out_bias = c.attention_bias;
  }
  if (type == "llama") {
    VOLTA_TRY(c.ffn_bias, root.get_bool_or("mlp_bias", false));
  }
  if (type == "qwen2") c.attention_bias = true;
  c.qk_norm = type == "qwen3";
  VOLTA_TRY(parse_windows(root, type, c));
  VOLTA_TRY(const std::int64_t longest,
            root.get_int_or("max_position_embeddings", family.context, 1, kMaxSize));
  VOLTA_TRY(parse_rope(root, longest, c));
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

// Qwen's older key for layer_types says how many layers at the front have no window.
void write_windows(JsonWriter& json, const TransformerConfig& c, std::string_view type) {
  json.key("sliding_window");
  c.window == 0 ? json.null() : json.value(c.window);
  if (type == "mistral") return;
  json.key("layer_types").begin_array();
  std::int64_t front = 0;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const bool full = c.layer_window(layer) == 0;
    if (full && front == layer) ++front;
    json.value(full ? "full_attention" : "sliding_attention");
  }
  json.end_array();
  if (!type.starts_with("qwen")) return;
  json.field("max_window_layers", front).field("use_sliding_window", c.window != 0);
}

void write_llama(JsonWriter& json, const TransformerConfig& c, std::string_view type) {
  json.field("hidden_size", c.dim).field("intermediate_size", c.ffn);
  json.field("num_hidden_layers", c.layers).field("num_attention_heads", c.heads);
  json.field("num_key_value_heads", c.kv_heads).field("head_dim", c.head_dim);
  json.field("rms_norm_eps", c.norm_eps).field("hidden_act", activation_name(c));
  json.field("initializer_range", c.init_std);
  write_rope(json, c);
  if (type == "llama" || type == "qwen3") json.field("attention_bias", c.attention_bias);
  if (type == "llama") json.field("mlp_bias", c.ffn_bias);
  if (type != "llama") write_windows(json, c, type);
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

Result<TransformerConfig> parse_family(const JsonRef& root, std::string_view type) {
  if (type == "gpt2") return parse_gpt2(root);
  if (const LlamaDefaults* const family = find_defaults(type)) return parse_llama(root, *family);
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: architecture '{}'; Volta runs gpt2, llama, mistral, ministral, "
                          "qwen2 and qwen3",
                          root.path(), type));
}

void write_family(JsonWriter& json, const TransformerConfig& config, std::string_view type) {
  if (type == "gpt2") return write_gpt2(json, config);
  if (find_defaults(type) != nullptr) write_llama(json, config, type);
}

}  // namespace volta
