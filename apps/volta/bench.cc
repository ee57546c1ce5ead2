// volta bench: its subcommands and their shared parts.
#include "bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/rng.h"
#include "base/version.h"

namespace volta::cli {
namespace {

/// The fewest tokens that can be timed: one for the prompt, one for a step.
constexpr std::int64_t kFewestTokens = 2;

}  // namespace

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(q * last + 0.5)];
}

JsonWriter begin_report(const DeviceInfo& device) {
  JsonWriter json;
  json.begin_object().field("version", version_with_hash());
  json.field("device", device.name).field("isa", device.isa).field("threads", device.threads);
  return json;
}

GenerationRequest random_request(const TransformerConfig& config, std::int64_t length,
                                 std::int64_t tokens, std::uint64_t seed) {
  GenerationRequest request{
      .prompt = {}, .max_new_tokens = tokens, .sampling = {}, .stop_tokens = {}};
  RandomSequence random({.seed = seed, .stream = 0, .step = 0});
  for (std::int64_t i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<std::int32_t>(
        random.next_below(static_cast<std::uint32_t>(config.vocab_size))));
  }
  request.sampling.temperature = 0.0f;
  return request;
}

Result<std::vector<std::int64_t>> prompt_lengths(const std::vector<std::int64_t>& asked,
                                                 std::span<const std::int64_t> usual,
                                                 std::int64_t context, std::string_view flag) {
  const std::int64_t longest = context - kFewestTokens;
  for (const std::int64_t length : asked) {
    if (length <= longest) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} {}: in a context of {} a prompt of at most {} leaves room for "
                            "tokens to time",
                            flag, length, context, std::max<std::int64_t>(longest, 0)));
  }
  if (longest < 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a context of {} is too short to time tokens in", context));
  }
  if (!asked.empty()) return asked;
  std::vector<std::int64_t> lengths;
  for (const std::int64_t length : usual) {
    if (length <= longest) lengths.push_back(length);
  }
  if (lengths.empty()) lengths.push_back(std::max<std::int64_t>(longest / 2, 1));
  return lengths;
}

void note_clipped(std::span<const std::int64_t> lengths, std::int64_t tokens,
                  std::int64_t context) {
  for (const std::int64_t length : lengths) {
    if (length + tokens <= context) continue;
    note(fmt::format("at prompt length {} the context of {} has room for {} tokens, not {}\n",
                     length, context, context - length, tokens));
  }
}

void add_bench_runs(Command& command, BenchRuns& runs, const std::string& flag,
                    std::span<const std::int64_t> usual) {
  constexpr std::int64_t kMost = 100000;
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
  command.add_option("--runs", runs.runs, fmt::format("measured runs (default {})", runs.runs))
      ->check(range(std::int64_t{1}, kMost));
  command
      .add_option("--warmup", runs.warmup,
                  fmt::format("runs before them (default {})", runs.warmup))
      ->check(range(std::int64_t{0}, kMost));
  command
      .add_option("--tokens", runs.tokens,
                  fmt::format("tokens to generate a run (default {})", runs.tokens))
      ->check(range(kFewestTokens, kMostTokens));
  command
      .add_option(flag, runs.lengths,
                  fmt::format("prompt lengths (default {})", fmt::join(usual, ",")))
      ->delimiter(',')
      ->take_all()
      ->check(range(std::int64_t{1}, kMostTokens));
}

void add_bench(Command& app, Globals& globals, Action& action) {
  Command* bench = app.add_subcommand("bench", "measure");
  bench->require_subcommand(1);
  add_bench_infer(*bench, globals, action);
  add_bench_model(*bench, globals, action);
  add_bench_gaps(*bench, globals, action);
  add_bench_history(*bench, globals, action);
}

}  // namespace volta::cli
