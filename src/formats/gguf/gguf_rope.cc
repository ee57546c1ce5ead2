#include "formats/gguf/gguf_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>

#include "base/arithmetic.h"
#include "formats/rope_config.h"
#include "nn/rope_table.h"

namespace volta {
namespace {

constexpr double kTolerance = 1e-4;  // Relative; factors were rounded to f32.

std::vector<float> plain_frequencies(TransformerConfig config) {
  config.rope_scaling = {};
  return rope_frequencies(config, config.context);
}

// The factors by which llama3's scaling divides the frequencies.
std::vector<float> llama3_factors(const TransformerConfig& config) {
  std::vector<float> factors = plain_frequencies(config);
  const std::vector<float> scaled = rope_frequencies(config, config.context);
  for (std::size_t i = 0; i < factors.size(); ++i) factors[i] /= scaled[i];
  return factors;
}

bool gives(const TransformerConfig& config, const RopeScaling& scaling,
           std::span<const float> wanted) {
  TransformerConfig tried = config;
  tried.rope_scaling = scaling;
  if (!validate(tried)) return false;
  const std::vector<float> factors = llama3_factors(tried);
  return std::ranges::equal(factors, wanted, [](float a, float b) {
    return std::abs(a - b) <= kTolerance * std::abs(b);
  });
}

// One pair of elements of a head: its rotations per token, and the part of its frequency that is
// kept (0: divided by the whole factor, 1: unchanged).
struct Pair {
  double rotations = 0.0, keep = 0.0;
  bool between() const { return keep > 1e-3 && keep < 1.0 - 1e-3; }
};

// Candidates for llama3's parameters. They satisfy keep = (original * rotations - low) / (high -
// low), clamped to [0, 1]. Two points of this line leave one of the three parameters open. Unless
// `original` is known, low is assumed to be 1, as in every known model.
std::vector<RopeScaling> candidates(const std::vector<Pair>& pairs, double factor,
                                    std::int64_t original) {
  std::vector<RopeScaling> list;
  const auto add = [&](double length, double low, double high) {
    if (!(length >= 1.0 && length < 1e15)) return;
    list.push_back({.kind = RopeKind::kLlama3,
                    .factor = factor,
                    .original = std::llround(length),
                    .low_freq_factor = low,
                    .high_freq_factor = high});
  };
  if (original > 0) add(static_cast<double>(original), 1.0, 4.0);
  add(8192.0, 1.0, 4.0);
  std::vector<Pair> ramp;
  std::ranges::copy_if(pairs, std::back_inserter(ramp), &Pair::between);
  const auto add_line = [&](double slope) {
    const Pair& on_it = ramp.front();
    const double start = on_it.keep - slope * on_it.rotations;  // -low / (high - low)
    const double width = original > 0 ? static_cast<double>(original) / slope : -1.0 / start;
    const double low = original > 0 ? -start * width : 1.0;
    add(slope * width, std::round(low), std::round(low + width));
    add(slope * width, low, low + width);
  };
  if (ramp.size() >= 2) {
    const Pair &a = ramp.front(), &b = ramp.back();
    add_line((a.keep - b.keep) / (a.rotations - b.rotations));
  } else if (ramp.size() == 1) {
    add((ramp.front().keep * 3.0 + 1.0) / ramp.front().rotations, 1.0, 4.0);
    // Any line that is steep enough to leave the neighbours at 0 and at 1.
    double slope = 0.0;
    for (const Pair& other : pairs) {
      if (other.between()) continue;
      const double limit = other.keep < 0.5 ? 0.0 : 1.0;
      slope =
          std::max(slope, (limit - ramp.front().keep) / (other.rotations - ramp.front().rotations));
    }
    if (slope > 0.0) add_line(slope * 1.0001);
  } else {  // Any values that separate unchanged from scaled pairs.
    const auto first = std::ranges::find_if(pairs, [](const Pair& p) { return p.keep < 0.5; });
    if (first == pairs.begin() || first == pairs.end()) return list;
    const double length = std::floor(0.999 / first->rotations);
    add(length, 1.0, length * std::prev(first)->rotations * 0.999);
  }
  return list;
}

Result<RopeScaling> find_llama3(const TransformerConfig& config, std::span<const float> factors,
                                std::int64_t original, const GgufFile& file) {
  const float largest = *std::ranges::max_element(factors);
  const auto frequencies = plain_frequencies(config);
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double least = 1.0 / static_cast<double>(largest);
    pairs.push_back({static_cast<double>(frequencies[i]) / (2.0 * std::numbers::pi),
                     (1.0 / static_cast<double>(factors[i]) - least) / (1.0 - least)});
  }
  for (const RopeScaling& scaling : candidates(pairs, static_cast<double>(largest), original)) {
    if (gives(config, scaling, factors)) return scaling;
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: the factors of tensor '{}' are not those of llama3's scaling",
                          file.path(), kGgufRopeFactors));
}

// The factors in a tensor; nullopt when it is missing or all factors are 1.
Result<std::optional<std::vector<float>>> read_factors(const GgufFile& file, std::string_view name,
                                                       const TransformerConfig& config) {
  const GgufTensor* tensor = file.find_tensor(name);
  if (tensor == nullptr) return std::nullopt;
  const Shape wanted(config.rotated() / 2);
  if (tensor->shape != wanted || tensor->type != GgmlType::kF32) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: tensor '{}' must be F32 {}", file.path(),
                                                     name, to_string(wanted)));
  }
  std::vector<float> factors(static_cast<std::size_t>(wanted[0]));
  file.read_values(*tensor, 0, factors);
  if (name != kGgufRopeFactors) return factors;  // validate() checks longrope's factors.
  if (!std::ranges::all_of(factors, [](float f) { return f >= 1.0f && f < 1e6f; })) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: tensor '{}' has factors below 1", file.path(), name));
  }
  if (std::ranges::all_of(factors, [](float f) { return f == 1.0f; })) return std::nullopt;
  return factors;
}

// Phi-3's scaling: the file has both tensors, or no scaling.
Result<std::optional<RopeScaling>> read_longrope(const GgufFile& file, std::int64_t original,
                                                 double attention_factor,
                                                 const TransformerConfig& config) {
  VOLTA_TRY(auto short_factors, read_factors(file, kGgufShortFactors, config));
  VOLTA_TRY(auto long_factors, read_factors(file, kGgufLongFactors, config));
  if (!short_factors && !long_factors) return std::nullopt;
  if (!short_factors || !long_factors) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: tensor '{}' is missing, while '{}' is there", file.path(),
                            short_factors ? kGgufLongFactors : kGgufShortFactors,
                            short_factors ? kGgufShortFactors : kGgufLongFactors));
  }
  return RopeScaling{.kind = RopeKind::kLongrope,
                     .original = original == 0 ? config.context : original,
                     .attention_factor = attention_factor,
                     .short_factors = *std::move(short_factors),
                     .long_factors = *std::move(long_factors)};
}

}  // namespace

Status read_gguf_rope(const GgufFile& file, const GgufArchitecture& architecture,
                      TransformerConfig& config) {
  const auto key = [&](std::string_view name) {
    return fmt::format("{}.rope.scaling.{}", architecture.name, name);
  };
  RopeScaling s;
  VOLTA_TRY(const double factor, file.get_float_or(key("factor"), 0.0));
  VOLTA_TRY(const auto type, file.get_string_or(key("type"), factor == 0.0 ? "none" : "linear"));
  VOLTA_TRY(const std::int64_t original,
            file.get_int_or(key("original_context_length"), 0, 0, kMaxPlausibleCount));
  VOLTA_TRY(const double attention, file.get_float_or(key("attn_factor"), 1.0));
  if (architecture.longrope) {
    VOLTA_TRY(auto longrope, read_longrope(file, original, attention, config));
    if (longrope) {
      config.rope_scaling = *std::move(longrope);
      return {};
    }
  }
  VOLTA_TRY(const auto factors, read_factors(file, kGgufRopeFactors, config));
  if (type != "none" && type != "linear" && type != "yarn") {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: rotary scaling '{}'; Volta knows none, linear, yarn and the "
                            "factors of llama3",
                            file.path(), type));
  }
  const bool scaled = type != "none" && factor != 0.0 && factor != 1.0;
  if (factors && scaled) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: rotary scaling by factors and '{}' at once", file.path(), type));
  }
  if (factors) {
    VOLTA_TRY(config.rope_scaling, find_llama3(config, *factors, original, file));
    return {};
  }
  if (!scaled) return {};
  s.factor = factor;
  s.original = original == 0 ? config.context : original;
  s.kind = type == "yarn" ? RopeKind::kYarn : RopeKind::kLinear;
  if (s.kind == RopeKind::kYarn) {
    VOLTA_TRY(s.beta_fast, file.get_float_or(key("yarn_beta_fast"), s.beta_fast));
    VOLTA_TRY(s.beta_slow, file.get_float_or(key("yarn_beta_slow"), s.beta_slow));
    s.attention_factor = attention * yarn_sharpening(factor);
  }
  config.rope_scaling = s;
  return {};
}

void add_gguf_rope(const TransformerConfig& config, const GgufArchitecture& architecture,
                   GgufMetadata& metadata) {
  const RopeScaling& s = config.rope_scaling;
  if (s.kind == RopeKind::kDefault) return;
  const auto key = [&](std::string_view name) {
    return fmt::format("{}.rope.scaling.{}", architecture.name, name);
  };
  metadata.add_u32(key("original_context_length"), static_cast<std::uint32_t>(s.original));
  if (s.kind == RopeKind::kLongrope) {
    metadata.add_f32(key("attn_factor"), static_cast<float>(s.attention_factor));
    return;
  }
  if (s.kind == RopeKind::kLlama3) return;  // Readers would take a factor here for linear scaling.
  metadata.add_string(key("type"), s.kind == RopeKind::kYarn ? "yarn" : "linear");
  metadata.add_f32(key("factor"), static_cast<float>(s.factor));
  if (s.kind != RopeKind::kYarn) return;
  const double attention = s.attention_factor / yarn_sharpening(s.factor);
  if (attention != 1.0) metadata.add_f32(key("attn_factor"), static_cast<float>(attention));
  metadata.add_f32(key("yarn_beta_fast"), static_cast<float>(s.beta_fast));
  metadata.add_f32(key("yarn_beta_slow"), static_cast<float>(s.beta_slow));
}

std::vector<GgufFactors> gguf_rope_factors(const TransformerConfig& config) {
  const RopeScaling& s = config.rope_scaling;
  if (s.kind == RopeKind::kLlama3) return {{kGgufRopeFactors, llama3_factors(config)}};
  if (s.kind != RopeKind::kLongrope) return {};
  return {{kGgufLongFactors, s.long_factors}, {kGgufShortFactors, s.short_factors}};
}

}  // namespace volta
