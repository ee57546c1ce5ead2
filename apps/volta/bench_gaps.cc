// volta bench gaps: how long running requests wait for their next token while the prompt of another
// request is read.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "base/version.h"
#include "bench.h"
#include "formats/model_source.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

/// Prompt length of the requests that wait, and of the one that makes room for the long prompt.
constexpr std::int64_t kShortPrompt = 4;
/// The shortest context in which these requests run for a while before and after the long prompt.
constexpr std::int64_t kLeastContext = kShortPrompt + 8;

constexpr std::int64_t kUsualPrompt = 1900;

struct BenchGapsOptions {
  std::string model;
  std::int64_t requests = 8;
  std::int64_t prompt = 0;  // 0: kUsualPrompt, or what the context holds.
  std::int64_t runs = 5;
};

struct GapsReport {
  DeviceInfo device;
  std::vector<double> usual;   // Seconds from a token of the first request to its next one.
  std::vector<double> beside;  // The same, while the long prompt is read.
  std::vector<double> first;   // Seconds from the arrival of the long prompt to its first token.
};

// The number of steps that only decode, before the long prompt arrives.
std::int64_t usual_steps(const TransformerConfig& config) {
  return std::min<std::int64_t>(12, (config.context - kShortPrompt) / 3);
}

// All requests of a run, in the order in which they start:
//  - options.requests requests that are decoded for the whole run and whose gaps are measured;
//  - one that ends after usual_steps() and so frees a slot;
//  - the one with the long prompt, which gets that slot.
std::vector<GenerationRequest> requests_of(const TransformerConfig& config,
                                           const BenchGapsOptions& options, std::uint64_t seed) {
  // Enough for the measured requests to run until the long prompt has been read.
  const std::int64_t tokens =
      std::min(config.context - kShortPrompt, options.prompt + 2 * usual_steps(config));
  std::vector<GenerationRequest> requests;
  for (std::int64_t i = 0; i < options.requests; ++i) {
    requests.push_back(
        random_request(config, kShortPrompt, tokens, seed + static_cast<std::uint64_t>(i)));
  }
  requests.push_back(random_request(config, kShortPrompt, usual_steps(config), seed));
  requests.push_back(random_request(config, options.prompt, 1, seed + 1000));
  return requests;
}

Status measure(Generator& generator, std::span<const GenerationRequest> requests, bool count,
               GapsReport& report) {
  const std::size_t last = requests.size() - 1;
  double before = 0.0, arrived = 0.0;
  const GenerationCallbacks callbacks{
      .token =
          [&](const TokenEvent& event) {
            const double now = monotonic_seconds();
            if (event.request == last && count) report.first.push_back(now - arrived);
            if (event.request == last) return false;  // The measurement is complete.
            if (event.request != 0) return !interrupted();
            if (const double since = std::exchange(before, now); count && since > 0.0) {
              (arrived > 0.0 ? report.beside : report.usual).push_back(now - since);
            }
            return !interrupted();
          },
      .prompt = {},
      .finished =
          [&](std::size_t request, const GenerationResult&) {
            if (request + 1 == last) arrived = monotonic_seconds();
            return !interrupted();
          }};
  VOLTA_TRY(generator.generate(requests, callbacks));
  if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
  return {};
}

Result<GapsReport> run_bench(const Transformer& model, const BenchGapsOptions& options,
                             const Globals& globals, DType dtype) {
  const TransformerConfig& config = model.config();
  if (options.prompt >= config.context || config.context < kLeastContext) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--prompt {}: the model's context of {} must hold it and a token more, "
                            "and at least {} tokens",
                            options.prompt, config.context, kLeastContext));
  }
  GapsReport report{.device = model.device()->info(), .usual = {}, .beside = {}, .first = {}};
  VOLTA_TRY(Generator generator,
            Generator::create(model, {.slots = options.requests + 1, .compute_dtype = dtype}));
  const auto requests = requests_of(config, options, globals.seed);
  for (std::int64_t run = 0; run <= options.runs; ++run) {  // The first one warms up.
    VOLTA_TRY(measure(generator, requests, run > 0, report));
  }
  return report;
}

std::string to_text(const GapsReport& report, const BenchGapsOptions& options) {
  const double usual = quantile(report.usual, 0.5), beside = quantile(report.beside, 0.5);
  return fmt::format(
      "{} on {} ({}, {}), volta {}\n"
      "from a token to the next: {} (p95 {})\n"
      "while a prompt of {} is read: {} (p95 {})\n"
      "  {:.2f} times as long; the first token of that prompt comes after {}\n",
      counted(options.requests, "request"), report.device.name, report.device.isa,
      counted(report.device.threads, "thread"), version_with_hash(), format_duration(usual),
      format_duration(quantile(report.usual, 0.95)), counted(options.prompt, "token"),
      format_duration(beside), format_duration(quantile(report.beside, 0.95)),
      usual > 0.0 ? beside / usual : 0.0, format_duration(quantile(report.first, 0.5)));
}

std::string to_json(const GapsReport& report, const BenchGapsOptions& options,
                    const Globals& globals) {
  JsonWriter json = begin_report(report.device);
  json.field("dtype", globals.dtype);
  json.field("seed", globals.seed).field("runs", options.runs);
  json.field("requests", options.requests).field("prompt", options.prompt);
  json.field("gap_s", quantile(report.usual, 0.5));
  json.field("gap_p95_s", quantile(report.usual, 0.95));
  json.field("gap_beside_s", quantile(report.beside, 0.5));
  json.field("gap_beside_p95_s", quantile(report.beside, 0.95));
  json.field("first_token_s", quantile(report.first, 0.5)).end_object();
  return std::move(json).take() + "\n";
}

Status bench_gaps(const Globals& globals, const BenchGapsOptions& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const WeightOptions wanted, weight_options(globals));
  VOLTA_TRY(const Session session, Session::create(globals));
  VOLTA_TRY(const ModelSource source, open_model(options.model, interrupted));
  VOLTA_TRY(const Transformer model, source.load(session.device(), wanted));
  BenchGapsOptions sized = options;
  if (sized.prompt == 0) sized.prompt = std::min(kUsualPrompt, model.config().context - 1);
  VOLTA_TRY(const GapsReport report, run_bench(model, sized, globals, dtype));
  VOLTA_TRY(session.finish());
  return print(output == Output::kJson ? to_json(report, sized, globals) : to_text(report, sized));
}

}  // namespace

void add_bench_gaps(Command& bench, Globals& globals, Action& action) {
  Command* command =
      bench.add_subcommand("gaps", "how long tokens wait while a long prompt arrives");
  auto options = std::make_shared<BenchGapsOptions>();
  command->add_option("model", options->model, kModelHelp)->required();
  command->add_option("--requests", options->requests, "requests that are generated (default 8)")
      ->check(range(std::int64_t{1}, std::int64_t{255}));
  command
      ->add_option("--prompt", options->prompt,
                   "tokens of the prompt (default 1900, or what the context holds)")
      ->check(range(std::int64_t{1}, std::int64_t{1} << 24));
  command->add_option("--runs", options->runs, "measured runs (default 5)")
      ->check(range(std::int64_t{1}, std::int64_t{100000}));
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return bench_gaps(globals, *options); };
  });
}

}  // namespace volta::cli
