// The sampling and stop options that generate and chat share. For a flag that is not given, the
// model's own settings count.
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

/// The value of -n for as many new tokens as the context has room for.
inline constexpr std::int64_t kUntilFull = -1;

/// Values that are not given come from the model's generation_config.json, then from the defaults.
struct SamplingOptions {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int32_t> top_k;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  std::vector<std::string> stop;
};

void add_sampling_options(Command& command, SamplingOptions& options);

/// kInvalidArgument for values that validate(SamplingParams) refuses.
Result<SamplingParams> sampling_params(const SamplingOptions& options,
                                       const GenerationConfig& config, std::uint64_t seed);

/// The stops of --stop and, if `with_ends`, the end tokens that the model's files name. Without a
/// tokenizer (null), the values of --stop are ids.
Result<Stops> find_stops(const SamplingOptions& options, const GenerationConfig& config,
                         const Tokenizer* tokenizer, bool with_ends = true);

}  // namespace volta::cli
