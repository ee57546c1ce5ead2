#include "formats/rope_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "formats/model_config.h"

namespace volta {
namespace {

struct KindName {
  std::string_view name;
  RopeKind kind;
};
constexpr std::array kKinds = {
    KindName{"default", RopeKind::kDefault}, KindName{"linear", RopeKind::kLinear},
    KindName{"dynamic", RopeKind::kDynamic}, KindName{"llama3", RopeKind::kLlama3},
    KindName{"yarn", RopeKind::kYarn},       KindName{"longrope", RopeKind::kLongrope},
};

Result<RopeKind> parse_kind(std::string_view path, std::string_view name) {
  for (const KindName& known : kKinds) {
    if (known.name == name) return known.kind;
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: rotary scaling '{}'; Volta has default, linear, dynamic, llama3, "
                          "yarn and longrope",
                          path, name));
}

// Phi-3 has older names for its only kind of scaling.
std::string_view usual_name(std::string_view name, const RopeKeys& keys) {
  return keys.longrope && (name == "su" || name == "yarn") ? "longrope" : name;
}

// Reads a number. 0 counts as missing, because some writers write 0 for "not set".
Result<double> positive_or(const JsonRef& ref, std::string_view key, double fallback) {
  VOLTA_TRY(const double value, ref.get_float_or(key, fallback));
  return value == 0.0 ? fallback : value;
}

Status parse_yarn(const JsonRef& rope, RopeScaling& s) {
  VOLTA_TRY(s.beta_fast, positive_or(rope, "beta_fast", s.beta_fast));
  VOLTA_TRY(s.beta_slow, positive_or(rope, "beta_slow", s.beta_slow));
  VOLTA_TRY(s.truncate, rope.get_bool_or("truncate", true));
  VOLTA_TRY(const double mscale, rope.get_float_or("mscale", 0.0));
  VOLTA_TRY(const double mscale_all_dim, rope.get_float_or("mscale_all_dim", 0.0));
  const bool both = mscale != 0.0 && mscale_all_dim != 0.0;
  const double usual =
      both ? yarn_sharpening(s.factor, mscale) / yarn_sharpening(s.factor, mscale_all_dim)
           : yarn_sharpening(s.factor);
  VOLTA_TRY(s.attention_factor, rope.get_float_or("attention_factor", usual));
  return {};
}

// Kinds of scaling whose configs contain the context length of the original training.
bool has_original(RopeKind kind) {
  return kind == RopeKind::kLlama3 || kind == RopeKind::kYarn || kind == RopeKind::kLongrope;
}

// The context length of the original training: the key in the config itself, else the key among the
// scaling parameters, else `longest`.
Result<std::int64_t> parse_original(const JsonRef& root, const JsonRef& rope,
                                    std::int64_t longest) {
  const std::string_view key = "original_max_position_embeddings";
  VOLTA_TRY(const std::int64_t inner, rope.get_int_or(key, longest, 1, kMaxPlausibleCount));
  return root.get_int_or(key, inner, 1, kMaxPlausibleCount);
}

// A list of divisors of the frequencies.
Result<std::vector<float>> parse_factors(const JsonRef& rope, std::string_view key) {
  VOLTA_TRY(const JsonRef list, rope.member(key));
  VOLTA_TRY(const auto elements, list.elements());
  std::vector<float> factors;
  for (const JsonRef& element : elements) {
    VOLTA_TRY(const double factor, element.as_float());
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

// Attention is scaled by a factor that follows from the ratio of the context to that of the
// original training (Ding et al. 2024), unless the config gives the factor.
Status parse_longrope(const JsonRef& rope, std::int64_t longest, RopeScaling& s) {
  VOLTA_TRY(s.short_factors, parse_factors(rope, "short_factor"));
  VOLTA_TRY(s.long_factors, parse_factors(rope, "long_factor"));
  const auto original = static_cast<double>(s.original);
  VOLTA_TRY(const double factor,
            rope.get_float_or("factor", static_cast<double>(longest) / original));
  const double usual = factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(original));
  VOLTA_TRY(s.attention_factor, rope.get_float_or("attention_factor", usual));
  return {};
}

Status parse_scaling(const JsonRef& root, const JsonRef& rope, std::int64_t longest,
                     const RopeKeys& keys, RopeScaling& s) {
  const bool from_original = has_original(s.kind);
  s.original = longest;
  if (from_original) {
    VOLTA_TRY(s.original, parse_original(root, rope, keys.original == 0 ? longest : keys.original));
  }
  if (s.kind == RopeKind::kLongrope) return parse_longrope(rope, longest, s);
  if (s.kind == RopeKind::kYarn) {
    const double ratio = static_cast<double>(longest) / static_cast<double>(s.original);
    VOLTA_TRY(s.factor, rope.get_float_or("factor", ratio));
    return parse_yarn(rope, s);
  }
  VOLTA_TRY(s.factor, rope.get_float("factor"));
  if (s.kind == RopeKind::kLlama3) {
    VOLTA_TRY(s.low_freq_factor, rope.get_float("low_freq_factor"));
    VOLTA_TRY(s.high_freq_factor, rope.get_float("high_freq_factor"));
  }
  return {};
}

// Refuses options that families without partial rotation do not have.
Status check_plain(const JsonRef& root, const JsonRef& rope, RopeKind kind) {
  if (const JsonValue::Object* members = rope.node().if_object()) {
    for (const auto& [key, value] : *members) {
      if (value.if_object() == nullptr) continue;
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: rotary parameters of their own for '{}'; Volta has one set for "
                              "all layers",
                              rope.path(), key));
    }
  }
  VOLTA_TRY(const double outer, root.get_float_or("partial_rotary_factor", 1.0));
  VOLTA_TRY(const double part, rope.get_float_or("partial_rotary_factor", outer));
  // Without scaling, these families ignore partial_rotary_factor and rotate whole heads.
  if (part == 1.0 || kind == RopeKind::kDefault) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: partial_rotary_factor {} with {} scaling; this family rotates whole "
                          "heads",
                          rope.path(), part, rope_kind_name(kind)));
}

// Sets which part of each head is rotated. The key may be in the object with the parameters, which
// takes precedence, or in the config itself.
Status parse_rotated_part(const JsonRef& root, const std::optional<JsonRef>& rope,
                          TransformerConfig& config) {
  const std::string_view key = "partial_rotary_factor";
  VOLTA_TRY(double part, root.get_float_or(key, 1.0));
  if (rope) {
    VOLTA_TRY(part, rope->get_float_or(key, part));
  }
  if (!(part > 0.0 && part <= 1.0)) {
    return fail(
        ErrorCode::kInvalidFile,
        fmt::format("{}: {} is {}; it must be above 0 and at most 1", root.path(), key, part));
  }
  const double width = static_cast<double>(config.head_dim) * part;
  if (width < 2.0) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {} is {}, which leaves nothing to rotate of heads of {}",
                            root.path(), key, part, config.head_dim));
  }
  config.rotary_dim = part == 1.0 ? 0 : static_cast<std::int64_t>(width);
  return {};
}

// The object with the parameters: under the old key unless it is empty, else under the new one.
Result<std::optional<JsonRef>> find_parameters_of_rope(const JsonRef& root) {
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    VOLTA_TRY(auto rope, root.optional_member(key));
    if (!rope) continue;
    const JsonValue::Object* members = rope->node().if_object();
    if (members == nullptr || !members->empty()) return rope;
  }
  return std::optional<JsonRef>();
}

// For a config with separate parameters for layers with and without a window: the parameters of the
// layers without a window, if present, and the base of the layers with one.
struct LayerRopes {
  std::optional<JsonRef> full;
  double local_theta = 0.0;
};
Result<LayerRopes> find_layer_ropes(const JsonRef& root, double usual) {
  LayerRopes out;
  VOLTA_TRY(out.local_theta, root.get_float_or("rope_local_base_freq", usual));
  VOLTA_TRY(const auto rope, root.optional_member("rope_parameters"));
  if (!rope) return out;
  VOLTA_TRY(out.full, rope->optional_member("full_attention"));
  VOLTA_TRY(const auto local, rope->optional_member("sliding_attention"));
  if (!local) return out;
  VOLTA_TRY(out.local_theta, local->get_float_or("rope_theta", out.local_theta));
  VOLTA_TRY(const std::string type, local->get_string_or("rope_type", "default"));
  if (type == "default") return out;
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("{}: rotary scaling '{}' in layers with a window; Volta scales the others "
                  "only",
                  local->path(), type));
}

// A value that a config gives in one place or more: it must be the same in all of them, because
// programs differ in the place that they read. For theta, versions 4 and 5 of transformers do.
template <typename T>
class AgreedValue {
 public:
  explicit AgreedValue(std::string_view what) : what_(what) {}

  // `value` is what `place` says.
  Status add(std::string place, T value) {
    if (!value_) {
      place_ = std::move(place);
      value_ = std::move(value);
      return {};
    }
    if (*value_ == value) return {};
    place.erase(0, place.rfind(' ') + 1);  // The name of the file is in place_ already.
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{} is {}, but {} is {}; write the {} that the model is to run with in "
                            "both places, or remove one of them",
                            place_, *value_, place, value, what_));
  }

 private:
  std::string_view what_;
  std::string place_;
  std::optional<T> value_;
};

// Adds the number under `key`, if it is there.
Status add_number(const JsonRef& object, std::string_view key, AgreedValue<double>& agreed) {
  VOLTA_TRY(const auto given, object.optional_member(key));
  if (!given) return {};
  VOLTA_TRY(const double value, given->as_float());
  return agreed.add(given->path(), value);
}

// Adds the kinds of scaling under the new key and the old one.
Status add_kinds(const JsonRef& object, const RopeKeys& keys, AgreedValue<std::string>& agreed) {
  for (const std::string_view key : {"rope_type", "type"}) {
    VOLTA_TRY(const auto given, object.optional_member(key));
    if (!given) continue;
    VOLTA_TRY(const std::string name, given->as_string());
    // The text part of Qwen2-VL: "mrope" is about positions of images, and rope_type says the rest.
    if (name == "mrope" && key == "type" && object.node().find("rope_type") != nullptr) continue;
    VOLTA_TRY(agreed.add(given->path(), std::string(usual_name(name, keys))));
  }
  return {};
}

// Refuses a base or a kind of scaling that two places of the config give differently.
Status check_agreed(const JsonRef& root, const RopeKeys& keys) {
  AgreedValue<double> theta("rope_theta"), local_theta("base");
  AgreedValue<std::string> kind("type");
  VOLTA_TRY(add_number(root, "rope_theta", theta));
  if (keys.local_theta > 0.0) VOLTA_TRY(add_number(root, "rope_local_base_freq", local_theta));
  for (const std::string_view name : {"rope_scaling", "rope_parameters"}) {
    VOLTA_TRY(const auto rope, root.optional_member(name));
    if (!rope || rope->node().if_object() == nullptr) continue;
    VOLTA_TRY(add_number(*rope, "rope_theta", theta));
    VOLTA_TRY(add_kinds(*rope, keys, kind));
    if (!(keys.local_theta > 0.0)) continue;
    VOLTA_TRY(const auto full, rope->optional_member("full_attention"));
    if (full && full->node().if_object() != nullptr) {
      VOLTA_TRY(add_number(*full, "rope_theta", theta));
      VOLTA_TRY(add_kinds(*full, keys, kind));
    }
    VOLTA_TRY(const auto local, rope->optional_member("sliding_attention"));
    if (local && local->node().if_object() != nullptr) {
      VOLTA_TRY(add_number(*local, "rope_theta", local_theta));
    }
  }
  return {};
}

// The length of `original` tokens stretched by `factor`, but at least `longest`.
std::int64_t stretched(std::int64_t longest, std::int64_t original, double factor) {
  const double wanted = std::floor(static_cast<double>(original) * factor);
  if (!(wanted > static_cast<double>(longest))) return longest;
  return static_cast<std::int64_t>(std::min(wanted, static_cast<double>(kMaxPlausibleCount)));
}

void write_list(JsonWriter& json, std::string_view key, const std::vector<float>& numbers) {
  json.key(key).begin_array();
  for (const float number : numbers) json.value(number);
  json.end_array();
}

void write_numbers(JsonWriter& json, const RopeScaling& s) {
  json.field("rope_type", rope_kind_name(s.kind));
  if (s.kind == RopeKind::kDefault) return;
  if (s.kind == RopeKind::kLongrope) {
    write_list(json, "short_factor", s.short_factors);
    write_list(json, "long_factor", s.long_factors);
    json.field("attention_factor", s.attention_factor);
  } else {
    json.field("factor", s.factor);
  }
  if (s.kind == RopeKind::kLlama3) {
    json.field("low_freq_factor", s.low_freq_factor);
    json.field("high_freq_factor", s.high_freq_factor);
  }
  if (s.kind == RopeKind::kYarn) {
    json.field("beta_fast", s.beta_fast).field("beta_slow", s.beta_slow);
    json.field("truncate", s.truncate).field("attention_factor", s.attention_factor);
  }
  if (has_original(s.kind)) {
    json.field("original_max_position_embeddings", s.original);
  }
}

// Volta's own keys: one per number, with the field's name.
template <typename Scaling, typename Visitor>
void visit_numbers(Scaling& s, Visitor&& visit) {
  visit("factor", s.factor);
  visit("low_freq_factor", s.low_freq_factor);
  visit("high_freq_factor", s.high_freq_factor);
  visit("beta_fast", s.beta_fast);
  visit("beta_slow", s.beta_slow);
  visit("attention_factor", s.attention_factor);
}

}  // namespace

std::string_view rope_kind_name(RopeKind kind) {
  return kKinds[static_cast<std::size_t>(kind)].name;  // The table is in the order of the enum.
}

double yarn_sharpening(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

Status parse_rope(const JsonRef& root, std::int64_t longest, const RopeKeys& keys,
                  TransformerConfig& config) {
  config.context = longest;
  VOLTA_TRY(check_agreed(root, keys));
  VOLTA_TRY(double theta, root.get_float_or("rope_theta", keys.theta));
  VOLTA_TRY(auto rope, find_parameters_of_rope(root));
  if (keys.local_theta > 0.0) {
    VOLTA_TRY(const LayerRopes layers, find_layer_ropes(root, keys.local_theta));
    if (config.window > 0) config.rope_local_theta = static_cast<float>(layers.local_theta);
    if (layers.full) {
      VOLTA_TRY(theta, layers.full->get_float_or("rope_theta", theta));
      if (rope && rope->node().find("full_attention") != nullptr) rope = layers.full;
    }
  }
  if (keys.partial) VOLTA_TRY(parse_rotated_part(root, rope, config));
  if (rope) {
    VOLTA_TRY(theta, rope->get_float_or("rope_theta", theta));
  }
  config.rope_theta = static_cast<float>(theta);
  if (!rope) return {};
  VOLTA_TRY(const std::string old_type, rope->get_string_or("type", "default"));
  VOLTA_TRY(const std::string type, rope->get_string_or("rope_type", old_type));
  RopeScaling& s = config.rope_scaling;
  VOLTA_TRY(s.kind, parse_kind(rope->path(), usual_name(type, keys)));
  if (!keys.partial) VOLTA_TRY(check_plain(root, *rope, s.kind));
  if (s.kind == RopeKind::kDefault) return {};
  VOLTA_TRY(parse_scaling(root, *rope, longest, keys, s));
  // Llama 3's length is always the length after stretching. Other lengths may be before it.
  const bool final = keys.context_is_final || s.kind == RopeKind::kLlama3;
  if (!final) config.context = stretched(longest, s.original, s.factor);
  return {};
}

void write_rope(JsonWriter& json, const TransformerConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  const bool before = s.kind == RopeKind::kLinear || s.kind == RopeKind::kDynamic;
  const auto write_part = [&] {
    if (c.rotary_dim == 0) return;
    json.field("partial_rotary_factor",
               static_cast<double>(c.rotary_dim) / static_cast<double>(c.head_dim));
  };
  const auto write_parameters = [&] {
    write_numbers(json, s);
    write_part();
    json.field("rope_theta", c.rope_theta).end_object();
  };
  json.field("max_position_embeddings", before ? s.original : c.context);
  json.field("rope_theta", c.rope_theta);
  if (s.kind == RopeKind::kLongrope) json.field("original_max_position_embeddings", s.original);
  json.key("rope_parameters").begin_object();
  if (c.rope_local_theta > 0.0f) {
    json.key("full_attention").begin_object();
    write_parameters();
    json.key("sliding_attention").begin_object().field("rope_type", "default");
    json.field("rope_theta", c.rope_local_theta).end_object().end_object();
    json.field("rope_local_base_freq", c.rope_local_theta);
  } else {
    write_parameters();
  }
  if (s.kind == RopeKind::kDefault) return;
  json.key("rope_scaling").begin_object();
  write_numbers(json, s);
  write_part();
  json.end_object();
}

Result<RopeScaling> parse_rope_scaling_fields(const JsonRef& config) {
  RopeScaling s;
  VOLTA_TRY(const auto ref, config.optional_member("rope_scaling"));
  if (!ref) return s;
  VOLTA_TRY(const std::string kind, ref->get_string("kind"));
  VOLTA_TRY(s.kind, parse_kind(ref->path(), kind));
  if (s.kind == RopeKind::kDefault) return s;
  Status status;
  visit_numbers(s, [&](std::string_view key, double& number) {
    auto value = ref->get_float(key);
    if (value) {
      number = *value;
    } else if (status) {
      status = std::unexpected(std::move(value).error());
    }
  });
  VOLTA_TRY(std::move(status));
  if (s.kind == RopeKind::kLongrope) {
    VOLTA_TRY(s.short_factors, parse_factors(*ref, "short_factors"));
    VOLTA_TRY(s.long_factors, parse_factors(*ref, "long_factors"));
  }
  VOLTA_TRY(s.original, ref->get_int("original", 0, kMaxPlausibleCount));
  VOLTA_TRY(s.truncate, ref->get_bool("truncate"));
  return s;
}

void write_rope_scaling_fields(JsonWriter& json, const RopeScaling& s) {
  if (s.kind == RopeKind::kDefault) return;
  json.key("rope_scaling").begin_object().field("kind", rope_kind_name(s.kind));
  visit_numbers(s, [&](std::string_view key, const double& number) { json.field(key, number); });
  if (s.kind == RopeKind::kLongrope) {
    write_list(json, "short_factors", s.short_factors);
    write_list(json, "long_factors", s.long_factors);
  }
  json.field("original", s.original).field("truncate", s.truncate).end_object();
}

}  // namespace volta
