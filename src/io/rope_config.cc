#include "io/rope_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

namespace volta {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;  // validate() knows the real limits.

struct KindName {
  std::string_view name;
  RopeKind kind;
};
constexpr std::array kKinds = {
    KindName{"default", RopeKind::kDefault}, KindName{"linear", RopeKind::kLinear},
    KindName{"dynamic", RopeKind::kDynamic}, KindName{"llama3", RopeKind::kLlama3},
    KindName{"yarn", RopeKind::kYarn},
};

std::string_view kind_name(RopeKind kind) {
  return kKinds[static_cast<std::size_t>(kind)].name;  // In the order of the enum.
}

Result<RopeKind> parse_kind(std::string_view path, std::string_view name) {
  for (const KindName& known : kKinds) {
    if (known.name == name) return known.kind;
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: rotary scaling '{}'; Volta has default, linear, dynamic, llama3 and "
                          "yarn",
                          path, name));
}

// A number that is above zero where it says something: some writers put 0 for "not set".
Result<double> positive_or(const JsonRef& ref, std::string_view key, double fallback) {
  VOLTA_TRY(const double value, ref.get_float_or(key, fallback));
  return value == 0.0 ? fallback : value;
}

// How much larger yarn makes attention when nothing else is said (Peng et al. 2023, section 3.4).
double yarn_sharpening(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
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
           : yarn_sharpening(s.factor, 1.0);
  VOLTA_TRY(s.attention_factor, rope.get_float_or("attention_factor", usual));
  return {};
}

// The context of the first training: beside the other numbers, in the config itself, which then
// counts, or the config's own length.
Result<std::int64_t> parse_original(const JsonRef& root, const JsonRef& rope,
                                    std::int64_t longest) {
  const std::string_view key = "original_max_position_embeddings";
  VOLTA_TRY(const std::int64_t inner, rope.get_int_or(key, longest, 1, kMaxSize));
  return root.get_int_or(key, inner, 1, kMaxSize);
}

Status parse_scaling(const JsonRef& root, const JsonRef& rope, std::int64_t longest,
                     RopeScaling& s) {
  const bool from_original = s.kind == RopeKind::kLlama3 || s.kind == RopeKind::kYarn;
  s.original = longest;
  if (from_original) {
    VOLTA_TRY(s.original, parse_original(root, rope, longest));
  }
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

// What the families of Volta have no place for.
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
  // Without scaling these families rotate whole heads whatever it says.
  if (part == 1.0 || kind == RopeKind::kDefault) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: partial_rotary_factor {} with {} scaling; this family rotates whole "
                          "heads",
                          rope.path(), part, kind_name(kind)));
}

// The object with the parameters: the old key where it says anything, else the new one.
Result<std::optional<JsonRef>> find_parameters_of_rope(const JsonRef& root) {
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    VOLTA_TRY(auto rope, root.optional_member(key));
    if (!rope) continue;
    const JsonValue::Object* members = rope->node().if_object();
    if (members == nullptr || !members->empty()) return rope;
  }
  return std::optional<JsonRef>();
}

// `original` tokens stretched by `factor`, if that is more than `longest`.
std::int64_t stretched(std::int64_t longest, std::int64_t original, double factor) {
  const double wanted = std::floor(static_cast<double>(original) * factor);
  if (!(wanted > static_cast<double>(longest))) return longest;
  return static_cast<std::int64_t>(std::min(wanted, static_cast<double>(kMaxSize)));
}

void write_numbers(JsonWriter& json, const RopeScaling& s) {
  json.field("rope_type", kind_name(s.kind));
  if (s.kind == RopeKind::kDefault) return;
  json.field("factor", s.factor);
  if (s.kind == RopeKind::kLlama3) {
    json.field("low_freq_factor", s.low_freq_factor);
    json.field("high_freq_factor", s.high_freq_factor);
  }
  if (s.kind == RopeKind::kYarn) {
    json.field("beta_fast", s.beta_fast).field("beta_slow", s.beta_slow);
    json.field("truncate", s.truncate).field("attention_factor", s.attention_factor);
  }
  if (s.kind == RopeKind::kLlama3 || s.kind == RopeKind::kYarn) {
    json.field("original_max_position_embeddings", s.original);
  }
}

// Volta's own keys: every number by its name.
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

Status parse_rope(const JsonRef& root, std::int64_t longest, TransformerConfig& config) {
  config.context = longest;
  VOLTA_TRY(double theta, root.get_float_or("rope_theta", 10000.0));
  VOLTA_TRY(const auto rope, find_parameters_of_rope(root));
  if (rope) {
    VOLTA_TRY(theta, rope->get_float_or("rope_theta", theta));
    VOLTA_TRY(const std::string old_type, rope->get_string_or("type", "default"));
    VOLTA_TRY(const std::string type, rope->get_string_or("rope_type", old_type));
    RopeScaling& s = config.rope_scaling;
    VOLTA_TRY(s.kind, parse_kind(rope->path(), type));
    VOLTA_TRY(check_plain(root, *rope, s.kind));
    if (s.kind != RopeKind::kDefault) {
      VOLTA_TRY(parse_scaling(root, *rope, longest, s));
    }
    // Llama 3's length is the stretched one already; the others' may be.
    if (s.kind != RopeKind::kLlama3) config.context = stretched(longest, s.original, s.factor);
  }
  config.rope_theta = static_cast<float>(theta);
  return {};
}

void write_rope(JsonWriter& json, const TransformerConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  const bool before = s.kind == RopeKind::kLinear || s.kind == RopeKind::kDynamic;
  json.field("max_position_embeddings", before ? s.original : c.context);
  json.field("rope_theta", c.rope_theta).key("rope_parameters").begin_object();
  write_numbers(json, s);
  json.field("rope_theta", c.rope_theta).end_object();
  if (s.kind == RopeKind::kDefault) return;
  json.key("rope_scaling").begin_object();
  write_numbers(json, s);
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
  VOLTA_TRY(s.original, ref->get_int("original", 0, kMaxSize));
  VOLTA_TRY(s.truncate, ref->get_bool("truncate"));
  return s;
}

void write_rope_scaling_fields(JsonWriter& json, const RopeScaling& s) {
  if (s.kind == RopeKind::kDefault) return;
  json.key("rope_scaling").begin_object().field("kind", kind_name(s.kind));
  visit_numbers(s, [&](std::string_view key, const double& number) { json.field(key, number); });
  json.field("original", s.original).field("truncate", s.truncate).end_object();
}

}  // namespace volta
