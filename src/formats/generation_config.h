// generation_config.json: the generation settings that a model's authors recommend. They are only
// defaults, which the user's options override. Knows neither the model nor the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
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

/// Loads DIR/generation_config.json, which may be absent, and adds the end tokens of
/// DIR/config.json. For a .gguf file, loads the generation_config.json that a conversion would
/// write. kInvalidFile, with the file and the id, for an end token outside a vocabulary of
/// `vocab_size`, which would never end a text.
Result<GenerationConfig> load_generation_config(const std::string& model, std::int64_t vocab_size);

}  // namespace volta
