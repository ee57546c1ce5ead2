#include "io/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;  // validate() knows the real limits.

struct ActivationName {
  std::string_view name;
  Activation activation;
};
// The first name of each activation is the one written.
constexpr std::array kActivations = {
    ActivationName{"gelu", Activation::kGelu},
    ActivationName{"gelu_new", Activation::kGeluTanh},
    ActivationName{"gelu_pytorch_tanh", Activation::kGeluTanh},
    ActivationName{"relu", Activation::kRelu},
    ActivationName{"silu", Activation::kSilu},
    ActivationName{"swish", Activation::kSilu},
};

Result<Activation> parse_activation(const JsonRef& root, std::string_view key,
                                    std::string_view fallback) {
  VOLTA_TRY(const std::string name, root.get_string_or(key, fallback));
  for (const ActivationName& known : kActivations) {
    if (known.name == name) return known.activation;
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: {}: activation '{}'; Volta has gelu, gelu_new, relu and silu",
                          root.path(), key, name));
}

std::string_view activation_name(Activation activation) {
  for (const ActivationName& known : kActivations) {
    if (known.activation == activation) return known.name;
  }
  return "none";
}

// Volta's own keys: every field, by its name.
template <typename Config, typename Visitor>
void visit_sizes(Config& c, Visitor&& visit) {
  visit("vocab_size", c.vocab_size);
  visit("context", c.context);
  visit("layers", c.layers);
  visit("dim", c.dim);
  visit("heads", c.heads);
  visit("kv_heads", c.kv_heads);
  visit("head_dim", c.head_dim);
  visit("ffn", c.ffn);
  visit("rotary_dim", c.rotary_dim);
}
template <typename Config, typename Visitor>
void visit_flags(Config& c, Visitor&& visit) {
  visit("norm_bias", c.norm_bias);
  visit("attention_bias", c.attention_bias);
  visit("attention_out_bias", c.attention_out_bias);
  visit("ffn_bias", c.ffn_bias);
  visit("qk_norm", c.qk_norm);
  visit("tied_output", c.tied_output);
}
template <typename Config, typename Visitor>
void visit_floats(Config& c, Visitor&& visit) {
  visit("norm_eps", c.norm_eps);
  visit("rope_theta", c.rope_theta);
  visit("init_std", c.init_std);
}

// One of two words.
Result<bool> is_first(const JsonRef& ref, std::string_view key, std::string_view first,
                      std::string_view second) {
  VOLTA_TRY(const std::string word, ref.get_string(key));
  if (word == first) return true;
  if (word == second) return false;
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: {} is '{}'; it must be {} or {}",
                                                   ref.path(), key, word, first, second));
}

Result<TransformerConfig> parse_gpt2(const JsonRef& root) {
  TransformerConfig c;
  VOLTA_TRY(c.vocab_size, root.get_int("vocab_size", 1, kMaxSize));
  VOLTA_TRY(c.context, root.get_int("n_positions", 1, kMaxSize));
  VOLTA_TRY(c.dim, root.get_int("n_embd", 1, kMaxSize));
  VOLTA_TRY(c.layers, root.get_int("n_layer", 1, kMaxSize));
  VOLTA_TRY(c.heads, root.get_int("n_head", 1, c.dim));
  VOLTA_TRY(c.ffn, root.get_int_or("n_inner", 4 * c.dim, 1, kMaxSize));
  VOLTA_TRY(const double eps, root.get_float_or("layer_norm_epsilon", 1e-5));
  VOLTA_TRY(c.tied_output, root.get_bool_or("tie_word_embeddings", true));
  VOLTA_TRY(c.activation, parse_activation(root, "activation_function", "gelu_new"));
  VOLTA_TRY(const bool by_layer, root.get_bool_or("scale_attn_by_inverse_layer_idx", false));
  VOLTA_TRY(const bool scaled, root.get_bool_or("scale_attn_weights", true));
  if (by_layer || !scaled) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: attention scaled by layer, or not at all, is not supported", root.path()));
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

// rope_theta and the scaling type, in the old keys or the new ones.
Status parse_rope(const JsonRef& root, TransformerConfig& c) {
  VOLTA_TRY(double theta, root.get_float_or("rope_theta", 10000.0));
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    VOLTA_TRY(const auto rope, root.optional_member(key));
    if (!rope) continue;
    VOLTA_TRY(theta, rope->get_float_or("rope_theta", theta));
    VOLTA_TRY(const std::string old_type, rope->get_string_or("type", "default"));
    VOLTA_TRY(const std::string type, rope->get_string_or("rope_type", old_type));
    if (type != "default") {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: rotary scaling '{}'; Volta has default", rope->path(), type));
    }
  }
  c.rope_theta = static_cast<float>(theta);
  return {};
}

// Whether all layers have the window, or none has; a mixture is not supported.
Result<bool> slides_everywhere(const JsonRef& root, std::int64_t layers) {
  std::int64_t sliding = layers;
  VOLTA_TRY(const auto types, root.optional_member("layer_types"));
  if (types) {
    VOLTA_TRY(const auto list, types->elements());
    sliding = 0;
    for (const JsonRef& type : list) {
      VOLTA_TRY(const std::string word, type.as_string());
      if (word == "sliding_attention") ++sliding;
    }
  } else {  // Qwen 2's older key: the first layers have none.
    VOLTA_TRY(const std::int64_t full, root.get_int_or("max_window_layers", 0, 0, kMaxSize));
    sliding = std::max<std::int64_t>(layers - full, 0);
  }
  if (sliding == 0 || sliding == layers) return sliding == layers;
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: {} of {} layers have a sliding window; Volta has it in all or none",
                          root.path(), sliding, layers));
}

Result<TransformerConfig> parse_llama(const JsonRef& root, std::string_view type) {
  TransformerConfig c;
  c.position = PositionKind::kRotary;
  c.norm = NormKind::kRms;
  c.ffn_kind = FfnKind::kGated;
  VOLTA_TRY(c.vocab_size, root.get_int("vocab_size", 1, kMaxSize));
  VOLTA_TRY(c.context, root.get_int("max_position_embeddings", 1, kMaxSize));
  VOLTA_TRY(c.dim, root.get_int("hidden_size", 1, kMaxSize));
  VOLTA_TRY(c.layers, root.get_int("num_hidden_layers", 1, kMaxSize));
  VOLTA_TRY(c.heads, root.get_int("num_attention_heads", 1, kMaxSize));
  VOLTA_TRY(c.kv_heads, root.get_int_or("num_key_value_heads", c.heads, 1, kMaxSize));
  VOLTA_TRY(c.head_dim,
            root.get_int_or("head_dim", std::max<std::int64_t>(c.dim / c.heads, 1), 1, kMaxSize));
  VOLTA_TRY(c.ffn, root.get_int("intermediate_size", 1, kMaxSize));
  VOLTA_TRY(const double eps, root.get_float_or("rms_norm_eps", 1e-6));
  c.norm_eps = static_cast<float>(eps);
  VOLTA_TRY(c.tied_output, root.get_bool_or("tie_word_embeddings", false));
  VOLTA_TRY(c.activation, parse_activation(root, "hidden_act", "silu"));
  VOLTA_TRY(c.ffn_bias, root.get_bool_or("mlp_bias", false));
  VOLTA_TRY(c.attention_bias, root.get_bool_or("attention_bias", type == "qwen2"));
  c.attention_out_bias = type != "qwen2" && c.attention_bias;
  c.qk_norm = type == "qwen3";
  VOLTA_TRY(const bool sliding, root.get_bool_or("use_sliding_window", type == "mistral"));
  if (sliding) {
    VOLTA_TRY(const std::int64_t window, root.get_int_or("sliding_window", 0, 0, 1 << 30));
    VOLTA_TRY(const bool everywhere, slides_everywhere(root, c.layers));
    if (everywhere) c.window = static_cast<std::int32_t>(window);
  }
  VOLTA_TRY(parse_rope(root, c));
  return c;
}

void write_gpt2(JsonWriter& json, const TransformerConfig& c) {
  json.field("activation_function", activation_name(c.activation));
  json.field("n_embd", c.dim).field("n_head", c.heads).field("n_inner", c.ffn);
  json.field("n_layer", c.layers).field("n_positions", c.context);
  json.field("layer_norm_epsilon", c.norm_eps).field("initializer_range", c.init_std);
  json.field("attn_pdrop", 0.0).field("embd_pdrop", 0.0).field("resid_pdrop", 0.0);
}

void write_llama(JsonWriter& json, const TransformerConfig& c, std::string_view type) {
  json.field("hidden_size", c.dim).field("intermediate_size", c.ffn);
  json.field("num_hidden_layers", c.layers).field("num_attention_heads", c.heads);
  json.field("num_key_value_heads", c.kv_heads).field("head_dim", c.head_dim);
  json.field("max_position_embeddings", c.context).field("rms_norm_eps", c.norm_eps);
  json.field("hidden_act", activation_name(c.activation));
  json.field("rope_theta", c.rope_theta).field("initializer_range", c.init_std);
  json.key("rope_parameters").begin_object().field("rope_type", "default");
  json.field("rope_theta", c.rope_theta).end_object();
  if (type != "qwen2") json.field("attention_bias", c.attention_bias);
  if (type == "llama") json.field("mlp_bias", c.ffn_bias);
  json.key("sliding_window");
  c.window == 0 ? json.null() : json.value(c.window);
  if (type.starts_with("qwen")) json.field("use_sliding_window", false);
}

std::string_view architecture(std::string_view type) {
  if (type == "gpt2") return "GPT2LMHeadModel";
  if (type == "llama") return "LlamaForCausalLM";
  if (type == "mistral") return "MistralForCausalLM";
  if (type == "qwen2") return "Qwen2ForCausalLM";
  if (type == "qwen3") return "Qwen3ForCausalLM";
  return "VoltaForCausalLM";
}

std::optional<double> number_of(const JsonValue& value) {
  if (const auto* integer = value.if_int()) return static_cast<double>(*integer);
  if (const auto* number = value.if_double()) return *number;
  return std::nullopt;
}

// Other writers may print a float with other digits.
bool same_leaf(const JsonValue& a, const JsonValue& b) {
  const auto x = number_of(a), y = number_of(b);
  const bool counts = a.if_int() != nullptr && b.if_int() != nullptr;
  if (x && y && !counts) return std::abs(*x - *y) <= 1e-6 * std::abs(*y);
  return a.leaf_text() == b.leaf_text();
}

// Keys that say nothing of the architecture, and which other tools may well set.
constexpr std::array<std::string_view, 10> kFreeKeys = {
    "architectures", "dtype",      "torch_dtype", "bos_token_id",      "eos_token_id",
    "attn_pdrop",    "embd_pdrop", "resid_pdrop", "initializer_range", "volta"};

// A config.json of Volta's says its architecture twice: in its own keys and in the family's. Where
// a tool changed one of them, neither can be trusted. `wanted` is what the own keys amount to.
Status check_agreement(const JsonValue& found, const JsonValue& wanted, const std::string& path,
                       std::string_view name) {
  const JsonValue::Object* members = wanted.if_object();
  if (members == nullptr) {
    if (wanted.is_null() || same_leaf(found, wanted)) return {};
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {} is {}, but the keys under 'volta' amount to {}; make them "
                            "agree, or remove 'volta' to go by the others",
                            name, path, found.leaf_text(), wanted.leaf_text()));
  }
  if (found.if_object() == nullptr) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {} is {}, but it must be an object", name,
                                                     path, found.leaf_text()));
  }
  for (const auto& [key, value] : *members) {
    if (std::ranges::find(kFreeKeys, key) != kFreeKeys.end()) continue;
    const JsonValue* other = found.find(key);
    if (other == nullptr || other->is_null()) continue;
    VOLTA_TRY(
        check_agreement(*other, value, path.empty() ? key : fmt::format("{}.{}", path, key), name));
  }
  return {};
}

}  // namespace

std::string_view model_family(const TransformerConfig& c) {
  if (c.position == PositionKind::kLearned) {
    const bool plain = c.norm == NormKind::kLayer && c.ffn_kind == FfnKind::kMlp && !c.qk_norm &&
                       c.kv_heads == c.heads && c.head_dim * c.heads == c.dim && c.window == 0;
    return plain ? "gpt2" : "volta";
  }
  if (c.norm != NormKind::kRms || c.ffn_kind != FfnKind::kGated || c.rotary_dim != 0)
    return "volta";
  if (c.qk_norm) {
    const bool plain = c.attention_bias == c.attention_out_bias && !c.ffn_bias && c.window == 0;
    return plain ? "qwen3" : "volta";
  }
  if (c.window != 0) {
    return c.attention_bias || c.attention_out_bias || c.ffn_bias ? "volta" : "mistral";
  }
  if (c.attention_bias == c.attention_out_bias) return "llama";
  return c.attention_bias && !c.ffn_bias ? "qwen2" : "volta";
}

// The layers without a window; folders of older versions have no such key.
Result<std::vector<std::int64_t>> parse_full_layers(const JsonRef& ref) {
  std::vector<std::int64_t> layers;
  VOLTA_TRY(const auto member, ref.optional_member("full_layers"));
  if (!member) return layers;
  VOLTA_TRY(const auto elements, member->elements());
  for (const JsonRef& element : elements) {
    VOLTA_TRY(const std::int64_t layer, element.as_int());
    layers.push_back(layer);
  }
  return layers;
}

Result<TransformerConfig> parse_config_fields(const JsonRef& ref) {
  TransformerConfig c;
  Status status;
  const auto keep = [&](auto result, auto& field) {
    if (!status) return;
    if (!result) {
      status = std::unexpected(std::move(result).error());
    } else {
      field = static_cast<std::remove_reference_t<decltype(field)>>(*result);
    }
  };
  visit_sizes(c, [&](auto key, auto& field) { keep(ref.get_int(key, 0, kMaxSize), field); });
  visit_flags(c, [&](auto key, auto& field) { keep(ref.get_bool(key), field); });
  visit_floats(c, [&](auto key, auto& field) { keep(ref.get_float(key), field); });
  keep(ref.get_int("window", 0, 1 << 30), c.window);
  VOLTA_TRY(std::move(status));
  VOLTA_TRY(c.full_layers, parse_full_layers(ref));
  VOLTA_TRY(const bool learned, is_first(ref, "position", "learned", "rotary"));
  VOLTA_TRY(const bool layer, is_first(ref, "norm", "layer", "rms"));
  VOLTA_TRY(const bool mlp, is_first(ref, "ffn_kind", "mlp", "gated"));
  c.position = learned ? PositionKind::kLearned : PositionKind::kRotary;
  c.norm = layer ? NormKind::kLayer : NormKind::kRms;
  c.ffn_kind = mlp ? FfnKind::kMlp : FfnKind::kGated;
  VOLTA_TRY(c.activation, parse_activation(ref, "activation", "gelu"));
  return c;
}

void write_config_fields(JsonWriter& json, const TransformerConfig& c) {
  const auto write = [&](auto key, const auto& field) { json.field(key, field); };
  json.begin_object();
  visit_sizes(c, write);
  json.field("position", c.position == PositionKind::kLearned ? "learned" : "rotary");
  json.field("norm", c.norm == NormKind::kLayer ? "layer" : "rms");
  json.field("ffn_kind", c.ffn_kind == FfnKind::kMlp ? "mlp" : "gated");
  json.field("activation", activation_name(c.activation));
  visit_flags(c, write);
  visit_floats(c, write);
  json.field("window", c.window);
  if (!c.full_layers.empty()) {
    json.key("full_layers").begin_array();
    for (const std::int64_t layer : c.full_layers) json.value(layer);
    json.end_array();
  }
  json.end_object();
}

Result<TransformerConfig> parse_model_config(std::string_view text, std::string_view name) {
  VOLTA_TRY(const JsonValue json, parse_json(text, name, {.max_bytes = std::int64_t{1} << 24}));
  const JsonRef root(json, name);
  VOLTA_TRY(const std::string type, root.get_string("model_type"));
  VOLTA_TRY(const auto own, root.optional_member("volta"));
  TransformerConfig config;
  if (own) {
    VOLTA_TRY(config, parse_config_fields(*own));
  } else if (type == "gpt2") {
    VOLTA_TRY(config, parse_gpt2(root));
  } else if (type == "llama" || type == "mistral" || type == "qwen2" || type == "qwen3") {
    VOLTA_TRY(config, parse_llama(root, type));
  } else {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: architecture '{}'; Volta runs gpt2, llama, mistral, qwen2 and qwen3", name,
                    type));
  }
  if (auto ok = validate(config); !ok) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", name, ok.error().message()));
  }
  if (own) {
    VOLTA_TRY(const JsonValue wanted, parse_json(model_config_json(config), name));
    VOLTA_TRY(check_agreement(json, wanted, "", name));
  }
  return config;
}

std::string model_config_json(const TransformerConfig& config) {
  const std::string_view type = model_family(config);
  JsonWriter json(2);
  json.begin_object().key("architectures").begin_array().value(architecture(type)).end_array();
  json.field("model_type", type).field("vocab_size", config.vocab_size);
  json.field("tie_word_embeddings", config.tied_output).field("dtype", "float32");
  json.field("torch_dtype", "float32").key("bos_token_id").null().key("eos_token_id").null();
  if (type == "gpt2") write_gpt2(json, config);
  if (type != "gpt2" && type != "volta") write_llama(json, config, type);
  write_config_fields(json.key("volta"), config);
  json.end_object();
  return std::move(json).take() + "\n";
}

Result<TransformerConfig> load_model_config(const std::string& directory) {
  const std::string path = join_path(directory, "config.json");
  VOLTA_TRY(const std::string text, read_text_file(path, std::int64_t{1} << 24));
  return parse_model_config(text, path);
}

}  // namespace volta
