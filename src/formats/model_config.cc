#include "formats/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "base/json.h"
#include "formats/model_families.h"
#include "formats/rope_config.h"
#include "nn/weight_names.h"

namespace volta {
namespace {

// Volta's own keys: one per field, with the field's name.
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

// Whether the value of a key is the first of two allowed words.
Result<bool> is_first(const JsonRef& ref, std::string_view key, std::string_view first,
                      std::string_view second) {
  VOLTA_TRY(const std::string word, ref.get_string(key));
  if (word == first) return true;
  if (word == second) return false;
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: {} is '{}'; it must be {} or {}",
                                                   ref.path(), key, word, first, second));
}

std::optional<double> number_of(const JsonValue& value) {
  if (const auto* integer = value.if_int()) return static_cast<double>(*integer);
  if (const auto* number = value.if_double()) return *number;
  return std::nullopt;
}

// Compares floats with a tolerance, because other writers may print a float with other digits.
bool same_leaf(const JsonValue& a, const JsonValue& b) {
  const auto x = number_of(a), y = number_of(b);
  const bool counts = a.if_int() != nullptr && b.if_int() != nullptr;
  if (x && y && !counts) return std::abs(*x - *y) <= 1e-6 * std::abs(*y);
  if (a.if_array() != nullptr || b.if_array() != nullptr) return false;
  return a.leaf_text() == b.leaf_text();
}

bool same_list(const JsonValue& a, const JsonValue& b) {
  const JsonValue::Array *x = a.if_array(), *y = b.if_array();
  return x != nullptr && y != nullptr && std::ranges::equal(*x, *y, same_leaf);
}

// Keys that do not describe the architecture and that other tools often set.
constexpr std::array<std::string_view, 11> kFreeConfigKeys = {
    "architectures", "dtype",      "torch_dtype", "bos_token_id", "eos_token_id",
    "pad_token_id",  "attn_pdrop", "embd_pdrop",  "resid_pdrop",  "initializer_range",
    "volta"};

// A config.json written by Volta describes its architecture twice: in Volta's own keys and in the
// family's. If a tool changed one of them, neither can be trusted. `wanted` is the config.json that
// follows from Volta's own keys.
Status check_agreement(const JsonValue& found, const JsonValue& wanted, const std::string& path,
                       std::string_view name) {
  const JsonValue::Object* members = wanted.if_object();
  if (members == nullptr) {
    if (wanted.is_null() || same_leaf(found, wanted) || same_list(found, wanted)) return {};
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
    if (std::ranges::find(kFreeConfigKeys, key) != kFreeConfigKeys.end()) continue;
    const JsonValue* other = found.find(key);
    if (other == nullptr || other->is_null()) continue;
    // An earlier version may have had no family for this model.
    if (path.empty() && key == "model_type" && other->if_string() != nullptr &&
        *other->if_string() == "volta") {
      continue;
    }
    VOLTA_TRY(
        check_agreement(*other, value, path.empty() ? key : fmt::format("{}.{}", path, key), name));
  }
  return {};
}

std::string_view hub_name(DType dtype) {
  if (dtype == DType::kBF16) return "bfloat16";
  return dtype == DType::kF16 ? "float16" : "float32";
}

// A list of layer numbers; folders of older versions have no such keys.
Result<std::vector<std::int64_t>> parse_layers(const JsonRef& ref, std::string_view key) {
  std::vector<std::int64_t> layers;
  VOLTA_TRY(const auto member, ref.optional_member(key));
  if (!member) return layers;
  VOLTA_TRY(const auto elements, member->elements());
  for (const JsonRef& element : elements) {
    VOLTA_TRY(const std::int64_t layer, element.as_int());
    layers.push_back(layer);
  }
  return layers;
}

void write_layers(JsonWriter& json, std::string_view key, const std::vector<std::int64_t>& layers) {
  if (layers.empty()) return;
  json.key(key).begin_array();
  for (const std::int64_t layer : layers) json.value(layer);
  json.end_array();
}

// The tensor names in folders without the key weight_names.
WeightNaming usual_naming(PositionKind position) {
  return position == PositionKind::kLearned ? WeightNaming::kGpt2 : WeightNaming::kLlama;
}

constexpr std::array<std::string_view, 3> kNormPlaces = {"before", "after", "around"};

// Fields that later versions added are written only if they differ from their default, so that runs
// of older versions can continue.
template <typename Config, typename Visitor>
void visit_later_flags(Config& c, Visitor&& visit) {
  visit("norm_plus_one", c.norm_plus_one);
  visit("qk_norm_whole", c.qk_norm_whole);
  visit("embedding_scaled", c.embedding_scaled);
  visit("attention_scaled_by_layer", c.attention_scaled_by_layer);
}
template <typename Config, typename Visitor>
void visit_later_floats(Config& c, Visitor&& visit) {
  for (const ModelNumber& number : kModelNumbers) {
    visit(number.name, c.*number.field, value_without(number.field));
  }
  visit("rope_local_theta", c.rope_local_theta, 0.0f);
}

Status parse_later_fields(const JsonRef& ref, TransformerConfig& c) {
  VOLTA_TRY(const std::string names,
            ref.get_string_or("weight_names", weight_names(usual_naming(c.position)).word));
  const auto naming = find_naming(names);
  if (!naming) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: weight_names '{}'; Volta has {}",
                                                     ref.path(), names, naming_words()));
  }
  c.naming = *naming;
  VOLTA_TRY(const std::string place, ref.get_string_or("norm_place", kNormPlaces[0]));
  const auto* const known = std::ranges::find(kNormPlaces, place);
  if (known == kNormPlaces.end()) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: norm_place is '{}'; it must be one of {}", ref.path(), place,
                            fmt::join(kNormPlaces, ", ")));
  }
  c.norm_place = static_cast<NormPlace>(known - kNormPlaces.begin());
  Status status;
  const auto keep = [&](auto result, auto& field) {
    if (result) {
      field = static_cast<std::remove_reference_t<decltype(field)>>(*result);
    } else if (status) {
      status = std::unexpected(std::move(result).error());
    }
  };
  visit_later_flags(c, [&](auto key, bool& flag) { keep(ref.get_bool_or(key, false), flag); });
  visit_later_floats(c, [&](std::string_view key, float& number, float none) {
    keep(ref.get_float_or(key, static_cast<double>(none)), number);
  });
  VOLTA_TRY(std::move(status));
  VOLTA_TRY(c.full_layers, parse_layers(ref, "full_layers"));
  VOLTA_TRY(c.unrotated_layers, parse_layers(ref, "unrotated_layers"));
  VOLTA_TRY(const double scale, ref.get_float_or("activation_scale", 1.0));
  c.activation_scale = static_cast<float>(scale);
  VOLTA_TRY(c.attention_scaled, ref.get_bool_or("attention_scaled", true));
  return {};
}

void write_later_fields(JsonWriter& json, const TransformerConfig& c) {
  if (c.naming != usual_naming(c.position)) json.field("weight_names", weight_names(c).word);
  if (c.norm_place != NormPlace::kBefore) {
    json.field("norm_place", kNormPlaces[static_cast<std::size_t>(c.norm_place)]);
  }
  if (c.activation_scale != 1.0f) json.field("activation_scale", c.activation_scale);
  if (!c.attention_scaled) json.field("attention_scaled", false);
  visit_later_flags(c, [&](auto key, bool flag) {
    if (flag) json.field(key, true);
  });
  visit_later_floats(c, [&](std::string_view key, float number, float none) {
    if (number != none) json.field(key, number);
  });
}

}  // namespace

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
  visit_sizes(c,
              [&](auto key, auto& field) { keep(ref.get_int(key, 0, kMaxPlausibleCount), field); });
  visit_flags(c, [&](auto key, auto& field) { keep(ref.get_bool(key), field); });
  visit_floats(c, [&](auto key, auto& field) { keep(ref.get_float(key), field); });
  keep(ref.get_int("window", 0, 1 << 30), c.window);
  VOLTA_TRY(std::move(status));
  VOLTA_TRY(c.rope_scaling, parse_rope_scaling_fields(ref));
  VOLTA_TRY(const bool learned, is_first(ref, "position", "learned", "rotary"));
  VOLTA_TRY(const bool layer, is_first(ref, "norm", "layer", "rms"));
  VOLTA_TRY(const bool mlp, is_first(ref, "ffn_kind", "mlp", "gated"));
  c.position = learned ? PositionKind::kLearned : PositionKind::kRotary;
  c.norm = layer ? NormKind::kLayer : NormKind::kRms;
  c.ffn_kind = mlp ? FfnKind::kMlp : FfnKind::kGated;
  VOLTA_TRY(parse_activation(ref, "activation", "gelu", c));
  VOLTA_TRY(parse_later_fields(ref, c));
  return c;
}

void write_config_fields(JsonWriter& json, const TransformerConfig& c) {
  const auto write = [&](auto key, const auto& field) { json.field(key, field); };
  json.begin_object();
  visit_sizes(c, write);
  json.field("position", c.position == PositionKind::kLearned ? "learned" : "rotary");
  json.field("norm", c.norm == NormKind::kLayer ? "layer" : "rms");
  json.field("ffn_kind", c.ffn_kind == FfnKind::kMlp ? "mlp" : "gated");
  TransformerConfig unscaled = c;
  unscaled.activation_scale = 1.0f;
  json.field("activation", activation_name(unscaled));
  write_later_fields(json, c);
  visit_flags(c, write);
  visit_floats(c, write);
  json.field("window", c.window);
  write_layers(json, "full_layers", c.full_layers);
  write_layers(json, "unrotated_layers", c.unrotated_layers);
  write_rope_scaling_fields(json, c.rope_scaling);
  json.end_object();
}

Result<TransformerConfig> parse_model_config(std::string_view text, std::string_view name) {
  VOLTA_TRY(const JsonValue json, parse_json(text, name, {.max_bytes = std::int64_t{1} << 24}));
  const JsonRef root(json, name);
  VOLTA_TRY(const std::string type, root.get_string("model_type"));
  VOLTA_TRY(const auto own, root.optional_member("volta"));
  VOLTA_TRY(const auto quantized, root.optional_member("quantization_config"));
  if (quantized) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: the weights are quantised; take the model in f32, f16 or bf16",
                            quantized->path()));
  }
  TransformerConfig config;
  if (own) {
    VOLTA_TRY(config, parse_config_fields(*own));
  } else {
    VOLTA_TRY(config, parse_family(root, type));
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

std::string model_config_json(const TransformerConfig& config, DType weights) {
  const std::string_view type = model_family(config);
  JsonWriter json(2);
  json.begin_object().key("architectures").begin_array().value(family_class(type)).end_array();
  json.field("model_type", type).field("vocab_size", config.vocab_size);
  json.field("tie_word_embeddings", config.tied_output).field("dtype", hub_name(weights));
  json.field("torch_dtype", hub_name(weights))
      .key("bos_token_id")
      .null()
      .key("eos_token_id")
      .null();
  // transformers refuses a padding token beyond the vocabulary, as some families' default is.
  json.key("pad_token_id").null();
  write_family(json, config, type);
  write_config_fields(json.key("volta"), config);
  json.end_object();
  return std::move(json).take() + "\n";
}

}  // namespace volta
