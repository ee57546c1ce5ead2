// volta bench infer: the time of a token, with and without the KV cache.
#include "bench_infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/text.h"
#include "base/version.h"
#include "bench_baseline.h"
#include "command.h"
#include "formats/model_source.h"
#include "help_format.h"
#include "nn/generator.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

// The measurements at one prompt length.
struct LengthReport {
  std::int64_t length = 0;
  std::vector<double> first_token;  // Seconds, one per run.
  std::vector<double> cached;       // Seconds per token.
  std::vector<double> uncached;
};

struct OpShare {
  std::string op;
  double share = 0.0;
  std::int64_t calls = 0;
};

struct BenchReport {
  DeviceInfo device;
  TransformerConfig config;
  DType dtype = DType::kF32;  // Of the computation.
  GeneratorMemory memory;
  std::vector<LengthReport> lengths;
  std::vector<OpShare> shares;
  std::int64_t peak_rss = 0;
};

// One run at one length: the cached and the uncached generator, one after the other.
Status measure(Generator& cached, Generator& uncached, const TransformerConfig& config,
               const BenchInferOptions& options, std::uint64_t seed, bool count,
               LengthReport& report) {
  const std::int64_t tokens = std::min(options.runs.tokens, config.context - report.length);
  const GenerationRequest with = random_request(config, report.length, tokens, seed);
  VOLTA_TRY(cached.generate(std::span(&with, 1)));
  if (count) {
    const GenerationTiming& timing = cached.timing();
    report.first_token.push_back(timing.first_token_seconds);
    report.cached.insert(report.cached.end(), timing.token_seconds.begin(),
                         timing.token_seconds.end());
  }
  // Without a cache the first token costs as much as every later one: the whole prefix is computed.
  const GenerationRequest without = random_request(config, report.length, 1, seed);
  for (int repeat = 0; repeat < 4; ++repeat) {
    VOLTA_TRY(uncached.generate(std::span(&without, 1)));
    if (count) report.uncached.push_back(uncached.timing().first_token_seconds);
  }
  return {};
}

// The share of each op in decoding. It is measured separately, so that profiling does not slow down
// the timed runs.
Result<std::vector<OpShare>> op_shares(const Transformer& model, const BenchInferOptions& options,
                                       std::uint64_t seed, DType dtype) {
  VOLTA_TRY(const auto profiler, ProfilingDevice::create(model.device(), {.max_events = 0}));
  VOLTA_TRY(const Transformer profiled,
            Transformer::from_weights(model.config(), model.weights(), profiler));
  const std::int64_t prompt = std::min<std::int64_t>(16, model.config().context / 2 + 1);
  const std::int64_t capacity = capacity_for(model.config(), prompt + options.runs.tokens);
  VOLTA_TRY(Generator generator,
            Generator::create(profiled, {.capacity = capacity, .compute_dtype = dtype}));
  const GenerationRequest request =
      random_request(model.config(), prompt, options.runs.tokens, seed);
  VOLTA_TRY(generator.generate(std::span(&request, 1)));  // Warm-up.
  bool decoding = false;  // True after the first token; the ops before it are the prompt's.
  VOLTA_TRY(generator.generate(std::span(&request, 1), [&](const TokenEvent&) {
    if (!std::exchange(decoding, true)) profiler->reset();
    return true;
  }));
  const Profile profile = profiler->profile();
  std::map<std::string, OpShare> by_name;
  for (const ProfileRow& row : profile.ops) {
    const std::string name = row.op.substr(0, row.op.find('{'));
    OpShare& share = by_name[name];
    share.op = name;
    share.calls += row.calls;
    share.share += static_cast<double>(row.total_ns) / static_cast<double>(profile.total_ns);
  }
  std::vector<OpShare> shares;
  for (auto& [name, share] : by_name) shares.push_back(std::move(share));
  std::sort(shares.begin(), shares.end(),
            [](const OpShare& a, const OpShare& b) { return a.share > b.share; });
  return shares;
}

Result<BenchReport> run_bench(const Transformer& model, const BenchInferOptions& options,
                              std::uint64_t seed, DType dtype) {
  BenchReport report{.device = model.device()->info(),
                     .config = model.config(),
                     .dtype = dtype,
                     .memory = {},
                     .lengths = {},
                     .shares = {}};
  const std::int64_t context = model.config().context;
  VOLTA_TRY(const auto lengths,
            prompt_lengths(options.runs.lengths, kBenchLengths, context, "--lengths"));
  GeneratorOptions sizes{
      .capacity = capacity_for(model.config(), std::ranges::max(lengths) + options.runs.tokens),
      .compute_dtype = dtype};
  VOLTA_TRY(Generator cached, Generator::create(model, sizes));
  sizes.use_cache = false;
  VOLTA_TRY(Generator uncached, Generator::create(model, sizes));
  for (const std::int64_t length : lengths) {
    report.lengths.push_back({.length = length, .first_token = {}, .cached = {}, .uncached = {}});
  }
  note_clipped(lengths, options.runs.tokens, context);
  for (std::int64_t run = 0; run < options.runs.warmup + options.runs.runs; ++run) {
    for (LengthReport& length : report.lengths) {
      VOLTA_TRY(measure(cached, uncached, model.config(), options, seed, run >= options.runs.warmup,
                        length));
      if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
    }
  }
  report.memory = cached.memory();
  VOLTA_TRY(report.shares, op_shares(model, options, seed, dtype));
  report.peak_rss = peak_rss_bytes();
  return report;
}

std::string to_text(const BenchReport& report) {
  std::string text =
      fmt::format("{} parameters on {} ({}, {}), volta {}\n",
                  format_count(parameter_count(report.config)), report.device.name,
                  report.device.isa, counted(report.device.threads, "thread"), version_with_hash());
  text +=
      fmt::format("weights {}, KV cache {}, activations {}, peak memory {}\n\n",
                  format_bytes(report.memory.weight_bytes), format_bytes(report.memory.cache_bytes),
                  format_bytes(report.memory.activation_bytes), format_bytes(report.peak_rss));
  text += fmt::format("{:>6} {:>11} {:>10} {:>10} {:>9} {:>10} {:>9} {:>8}\n", "prompt",
                      "first token", "token", "p95", "tokens/s", "no cache", "tokens/s", "gain");
  for (const LengthReport& r : report.lengths) {
    const double token = quantile(r.cached, 0.5);
    const double slow = quantile(r.uncached, 0.5);
    text += fmt::format("{:>6} {:>11} {:>10} {:>10} {:>9.0f} {:>10} {:>9.0f} {:>7.1f}x\n", r.length,
                        format_duration(quantile(r.first_token, 0.5)), format_duration(token),
                        format_duration(quantile(r.cached, 0.95)), token > 0.0 ? 1.0 / token : 0.0,
                        format_duration(slow), slow > 0.0 ? 1.0 / slow : 0.0,
                        token > 0.0 ? slow / token : 0.0);
  }
  std::string shares = "share of each op in decoding:";
  for (const OpShare& share : report.shares) {
    if (share.share >= 0.01) shares += fmt::format(" {} {:.0f}%", share.op, 100.0 * share.share);
  }
  return text + "\n" + wrap_help(shares) + "\n";
}

std::string to_json(const BenchReport& report, const BenchInferOptions& options,
                    std::uint64_t seed) {
  JsonWriter json = begin_report(report.device);
  json.field("seed", seed).field("runs", options.runs.runs).field("tokens", options.runs.tokens);
  json.field("dtype", dtype_name(report.dtype));
  json.field("parameters", parameter_count(report.config));
  json.field("weight_bytes", report.memory.weight_bytes);
  json.field("cache_bytes", report.memory.cache_bytes);
  json.field("activation_bytes", report.memory.activation_bytes);
  json.field("peak_rss_bytes", report.peak_rss).key("lengths").begin_array();
  for (const LengthReport& r : report.lengths) {
    json.begin_object().field("prompt", r.length);
    json.field("first_token_s", quantile(r.first_token, 0.5));
    json.field("token_s", quantile(r.cached, 0.5)).field("token_p95_s", quantile(r.cached, 0.95));
    json.field("tokens_per_s", 1.0 / quantile(r.cached, 0.5));
    json.field("no_cache_token_s", quantile(r.uncached, 0.5));
    json.field("no_cache_tokens_per_s", 1.0 / quantile(r.uncached, 0.5)).end_object();
  }
  json.end_array().key("op_shares").begin_object();
  for (const OpShare& share : report.shares) json.field(share.op, share.share);
  json.end_object().end_object();
  return std::move(json).take() + "\n";
}

std::string to_csv(const BenchReport& report) {
  std::string text =
      "prompt,first_token_s,token_s,token_p95_s,tokens_per_s,no_cache_token_s,"
      "no_cache_tokens_per_s\n";
  for (const LengthReport& r : report.lengths) {
    const double token = quantile(r.cached, 0.5), slow = quantile(r.uncached, 0.5);
    text += fmt::format("{},{},{},{},{},{},{}\n", r.length, quantile(r.first_token, 0.5), token,
                        quantile(r.cached, 0.95), 1.0 / token, slow, 1.0 / slow);
  }
  return text;
}

std::vector<Latency> latencies_of(const BenchReport& report) {
  std::vector<Latency> latencies;
  for (const LengthReport& r : report.lengths) {
    latencies.push_back({.prompt = r.length,
                         .first_token = quantile(r.first_token, 0.5),
                         .token = quantile(r.cached, 0.5)});
  }
  return latencies;
}

}  // namespace

Status bench_infer(const Globals& globals, const BenchInferOptions& options) {
  VOLTA_TRY(const Output output,
            parse_output(globals, {Output::kText, Output::kJson, Output::kCsv}));
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const WeightOptions wanted, weight_options(globals));
  VOLTA_TRY(const Session session, Session::create(globals));
  note_slow_products(session, dtype);
  std::optional<LatencyBaseline> baseline;
  if (!options.baseline.empty()) {
    VOLTA_TRY(baseline, read_baseline(options.baseline, session.device()->info(), dtype,
                                      options.runs.tokens));
  }
  Result<Transformer> model = fail(ErrorCode::kInternal, "no model");
  if (options.model.empty()) {
    model = Transformer::random(tiny_lm_config(), globals.seed, session.device());
  } else {
    VOLTA_TRY(const ModelSource source, open_model(options.model, interrupted));
    model = source.load(session.device(), wanted);
  }
  VOLTA_TRY(Transformer loaded, std::move(model));
  VOLTA_TRY(loaded.prepack(wanted.format));
  VOLTA_TRY(const BenchReport report, run_bench(loaded, options, globals.seed, dtype));
  VOLTA_TRY(session.finish());
  VOLTA_TRY(print(output == Output::kJson  ? to_json(report, options, globals.seed)
                  : output == Output::kCsv ? to_csv(report)
                                           : to_text(report)));
  if (!baseline) return {};
  const ModelSize size{.parameters = parameter_count(report.config),
                       .weight_bytes = report.memory.weight_bytes};
  return compare_latencies(latencies_of(report), size, *baseline, options.limit);
}

void add_bench_infer(Command& bench, Globals& globals, Action& action) {
  Command* command = bench.add_subcommand("infer", "what a token costs, with and without KV cache");
  auto options = std::make_shared<BenchInferOptions>();
  command->add_option(
      "model", options->model,
      fmt::format("{} (default: the default TinyLm with random weights)", kModelHelp));
  add_bench_runs(*command, options->runs, "--lengths", kBenchLengths);
  Option* baseline = command->add_option(
      "--baseline", options->baseline,
      "a report of --output json to compare with, - for standard input; exit code 6 when this run "
      "is slower");
  command
      ->add_option("--limit", options->limit,
                   "per cent by which a time may be above the baseline's (default 10)")
      ->check(range(0.0, 1000.0))
      ->needs(baseline);
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return bench_infer(globals, *options); };
  });
}

}  // namespace volta::cli
