// How a command draws tokens and where it ends: the flags that generate and chat share, and what
// the model's own settings say where a flag does not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/generation_config.h"
#include "nn/generator.h"
#include "options.h"
#include "text/completion_stream.h"
#include "text/tokenizer.h"

namespace volta::cli {

/// What is not given comes from the model's generation_config.json, then from the defaults.
struct SamplingOptions {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int32_t> top_k;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  std::vector<std::string> stop;
};

void add_sampling_options(Command& command, SamplingOptions& options);

/// kInvalidArgument for what validate(SamplingParams) refuses.
Result<SamplingParams> sampling_params(const SamplingOptions& options,
                                       const GenerationConfig& config, std::uint64_t seed);

/// --stop and, `with_ends`, the ends of texts that the model's files know. Without a tokenizer
/// (null) stops are ids.
Result<Stops> find_stops(const SamplingOptions& options, const GenerationConfig& config,
                         const Tokenizer* tokenizer, bool with_ends = true);

}  // namespace volta::cli
