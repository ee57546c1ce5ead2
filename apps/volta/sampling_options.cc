#include "sampling_options.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace volta::cli {
namespace {

constexpr float kDefaultTemperature = 0.8f;

// "--top-p is 2; ..." for the library's "sampling: top_p is 2; ...".
Error name_option(Error error) {
  constexpr std::string_view kBefore = "sampling: ";
  std::string text(error.message());
  if (!text.starts_with(kBefore)) return error;
  text.replace(0, kBefore.size(), "--");
  std::ranges::replace(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find(' ')),
                       '_', '-');
  return Error(error.code(), text);
}

}  // namespace

void add_sampling_options(Command& command, SamplingOptions& options) {
  command.add_option("--temperature,--temp", options.temperature, "0 is greedy (default 0.8)");
  command.add_option("--top-k", options.top_k, "keep the k likeliest tokens; 0: all")
      ->check(range(std::int64_t{0}, std::int64_t{1} << 24));
  command.add_option("--top-p", options.top_p, "keep the likeliest tokens of this total; 1: all")
      ->check(range(0.0, 1.0));
  command.add_option("--min-p", options.min_p, "drop tokens below this share of the likeliest")
      ->check(range(0.0, 1.0));
  command.add_option("--repetition-penalty", options.repetition_penalty,
                     "against tokens of prompt and output; 1: none");
  command.add_option("--frequency-penalty", options.frequency_penalty,
                     "off a logit for each time the output has the token; 0: none");
  command.add_option("--presence-penalty", options.presence_penalty,
                     "off a logit if the output has the token; 0: none");
  command.add_option("--stop", options.stop, "end before this text; may be repeated")
      ->allow_extra_args(false)
      ->take_all()
      ->allow_empty();
}

Result<SamplingParams> sampling_params(const SamplingOptions& options,
                                       const GenerationConfig& config, std::uint64_t seed) {
  const bool greedy = options.temperature.has_value() && *options.temperature == 0.0f;
  if (greedy && (options.top_k || options.top_p || options.min_p)) {
    return fail(ErrorCode::kInvalidArgument,
                "--temperature 0 takes the likeliest token, so that --top-k, --top-p and --min-p "
                "have no effect: drop them, or choose another temperature");
  }
  SamplingParams params = config.sampling({.temperature = kDefaultTemperature});
  params.temperature = options.temperature.value_or(params.temperature);
  params.top_k = options.top_k.value_or(params.top_k);
  params.top_p = options.top_p.value_or(params.top_p);
  params.min_p = options.min_p.value_or(params.min_p);
  params.repetition_penalty = options.repetition_penalty.value_or(params.repetition_penalty);
  params.frequency_penalty = options.frequency_penalty;
  params.presence_penalty = options.presence_penalty;
  params.seed = seed;
  const Status valid = validate(params);
  if (!valid) return std::unexpected(name_option(valid.error()));
  return params;
}

Result<Stops> find_stops(const SamplingOptions& options, const GenerationConfig& config,
                         const Tokenizer* tokenizer, bool with_ends) {
  VOLTA_TRY(Stops stops, parse_stops(options.stop, tokenizer, "--stop"));
  if (!with_ends) return stops;
  std::vector<std::int32_t> ends = config.end_tokens;
  if (tokenizer != nullptr && tokenizer->end_token()) ends.push_back(*tokenizer->end_token());
  for (const std::int32_t id : ends) {
    if (std::ranges::find(stops.tokens, id) == stops.tokens.end()) stops.tokens.push_back(id);
  }
  return stops;
}

}  // namespace volta::cli
