#include "formats/generation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/arithmetic.h"
#include "base/json.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxId = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMaxEndTokens = 4096;  // Each new token is compared with each end token.

// eos_token_id: nothing, null, an id, or a list of ids.
Result<std::vector<std::int32_t>> read_end_tokens(const JsonRef& root) {
  std::vector<std::int32_t> ids;
  VOLTA_TRY(const auto member, root.optional_member("eos_token_id"));
  if (!member) return ids;
  if (member->node().if_array() == nullptr) {
    VOLTA_TRY(const std::int64_t id, member->as_int(0, kMaxId));
    ids.push_back(static_cast<std::int32_t>(id));
    return ids;
  }
  VOLTA_TRY(const auto elements, member->elements());
  if (elements.size() > kMaxEndTokens) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {} ids; at most {} make sense", member->path(), elements.size(),
                            kMaxEndTokens));
  }
  for (const JsonRef& element : elements) {
    VOLTA_TRY(const std::int64_t id, element.as_int(0, kMaxId));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

template <typename T>
Status read_int(const JsonRef& root, std::string_view key, std::int64_t min, std::int64_t max,
                std::optional<T>& out) {
  VOLTA_TRY(const auto member, root.optional_member(key));
  if (!member) return {};
  VOLTA_TRY(const std::int64_t value, member->as_int(min, max));
  out = static_cast<T>(value);
  return {};
}

Status read_float(const JsonRef& root, std::string_view key, std::optional<float>& out) {
  VOLTA_TRY(const auto member, root.optional_member(key));
  if (!member) return {};
  constexpr double kMax = std::numeric_limits<float>::max();
  VOLTA_TRY(const double value, member->as_float(-kMax, kMax));
  out = static_cast<float>(value);
  return {};
}

}  // namespace

SamplingParams GenerationConfig::sampling(SamplingParams fallback) const {
  if (do_sample == true) fallback.temperature = 1.0f;
  fallback.temperature = temperature.value_or(fallback.temperature);
  if (do_sample == false) fallback.temperature = 0.0f;
  fallback.top_k = top_k.value_or(fallback.top_k);
  fallback.top_p = top_p.value_or(fallback.top_p);
  fallback.min_p = min_p.value_or(fallback.min_p);
  fallback.repetition_penalty = repetition_penalty.value_or(fallback.repetition_penalty);
  return fallback;
}

std::int64_t GenerationConfig::new_tokens(std::int64_t prompt, std::int64_t fallback) const {
  if (max_new_tokens) return *max_new_tokens;
  if (max_length) return std::max<std::int64_t>(1, *max_length - prompt);
  return fallback;
}

Result<GenerationConfig> parse_generation_config(std::string_view json, std::string_view name) {
  VOLTA_TRY(const JsonValue value, parse_json(json, name));
  const JsonRef root(value, name);
  GenerationConfig config;
  VOLTA_TRY(config.end_tokens, read_end_tokens(root));
  VOLTA_TRY(read_int(root, "bos_token_id", 0, kMaxId, config.begin_token));
  VOLTA_TRY(const auto do_sample, root.optional_member("do_sample"));
  if (do_sample) {
    VOLTA_TRY(config.do_sample, do_sample->as_bool());
  }
  VOLTA_TRY(read_float(root, "temperature", config.temperature));
  VOLTA_TRY(read_int(root, "top_k", 0, kMaxId, config.top_k));
  VOLTA_TRY(read_float(root, "top_p", config.top_p));
  VOLTA_TRY(read_float(root, "min_p", config.min_p));
  VOLTA_TRY(read_float(root, "repetition_penalty", config.repetition_penalty));
  VOLTA_TRY(read_int(root, "max_new_tokens", 0, kMaxPlausibleCount, config.max_new_tokens));
  VOLTA_TRY(read_int(root, "max_length", 0, kMaxPlausibleCount, config.max_length));
  if (auto valid = validate(config.sampling({})); !valid) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", name, valid.error().message()));
  }
  return config;
}

Result<std::vector<std::int32_t>> parse_end_tokens(std::string_view json, std::string_view name) {
  VOLTA_TRY(const JsonValue value, parse_json(json, name));
  return read_end_tokens(JsonRef(value, name));
}

}  // namespace volta
