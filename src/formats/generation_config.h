// generation_config.json: how a model's makers would have it generate. Read as defaults; whoever
// asks for something else is right. Knows neither the model nor the command line.
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

/// What the file says; what it does not say is nothing, or empty.
struct GenerationConfig {
  std::vector<std::int32_t> end_tokens;     ///< eos_token_id, one or several.
  std::optional<std::int32_t> begin_token;  ///< bos_token_id
  std::optional<bool> do_sample;            ///< false: greedy, whatever the temperature.
  std::optional<float> temperature;
  std::optional<std::int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::int64_t> max_length;  ///< Of prompt and new tokens; max_new_tokens wins.

  bool operator==(const GenerationConfig&) const = default;

  /// `fallback` with what the file says in its place. do_sample false gives temperature 0; true
  /// without a temperature gives 1.
  SamplingParams sampling(SamplingParams fallback) const;
  /// New tokens after a prompt of `prompt` tokens: max_new_tokens, or what max_length leaves (one
  /// at least), or `fallback`.
  std::int64_t new_tokens(std::int64_t prompt, std::int64_t fallback) const;
};

/// kInvalidFile for what is no such file, and for values outside the ranges of SamplingParams.
/// Other keys are ignored: most are of other tools.
Result<GenerationConfig> parse_generation_config(std::string_view json, std::string_view name);

/// DIR/generation_config.json, which may be absent, with the end tokens of DIR/config.json added to
/// its own; or what converting a .gguf file would write there. kInvalidFile, with file and id, for
/// an end token that a vocabulary of `vocab_size` does not have: it would never end anything.
Result<GenerationConfig> load_generation_config(const std::string& model, std::int64_t vocab_size);

}  // namespace volta
