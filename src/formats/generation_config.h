// generation_config.json: the generation settings that a model's authors recommend. They are only
// defaults, which the user's options override. Knows neither the model nor the command line.
// ModelSource::generation_config() reads those of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "nn/generator.h"

namespace [[gnu::visibility("default")]] volta {

/// The settings in the file. A setting that the file lacks is nullopt or empty.
struct GenerationConfig {
  std::vector<std::int32_t> end_tokens;     ///< eos_token_id: one id or several.
  std::optional<std::int32_t> begin_token;  ///< bos_token_id
  std::optional<bool> do_sample;            ///< false: greedy, at any temperature.
  std::optional<float> temperature;
  std::optional<std::int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::int64_t> max_length;  ///< With the prompt; max_new_tokens takes precedence.

  bool operator==(const GenerationConfig&) const = default;

  /// `fallback`, with the file's settings in place of its own. do_sample false gives temperature 0;
  /// do_sample true without a temperature gives temperature 1.
  SamplingParams sampling(SamplingParams fallback) const;
  /// The number of new tokens after a prompt of `prompt` tokens: max_new_tokens, else max_length
  /// minus the prompt (at least 1), else `fallback`.
  std::int64_t new_tokens(std::int64_t prompt, std::int64_t fallback) const;
};

/// kInvalidFile for a malformed file and for values outside the ranges of SamplingParams. Other
/// keys are ignored: most of them belong to other tools.
Result<GenerationConfig> parse_generation_config(std::string_view json, std::string_view name);

/// The ids of `eos_token_id` (one id or several) in a JSON document; empty when it has none.
/// kInvalidFile.
Result<std::vector<std::int32_t>> parse_end_tokens(std::string_view json, std::string_view name);

}  // namespace volta
