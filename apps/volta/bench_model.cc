// volta bench model: how fast a model reads prompts and writes tokens, and how much of its weights
// each token reads.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/text.h"
#include "base/version.h"
#include "bench.h"
#include "formats/model_source.h"
#include "nn/transformer_graph.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

constexpr std::array<std::int64_t, 2> kUsualPrompts = {128, 512};

struct BenchModelOptions {
  std::string model;
  AdapterOptions adapter;
  std::string kv_cache_dtype{};
  BenchRuns runs = {.runs = 5, .warmup = 1, .tokens = 64};
};

// The measurements after prompts of one length.
struct PromptReport {
  std::int64_t length = 0;
  std::vector<double> first_token;  // Seconds, one per run.
  std::vector<double> token;        // Seconds, one for each later token.
  std::vector<double> decode;       // Later tokens per second, one per run.

  double prefill_rate() const {
    const double seconds = quantile(first_token, 0.5);
    return seconds > 0.0 ? static_cast<double>(length) / seconds : 0.0;
  }
  double decode_rate() const { return quantile(decode, 0.5); }
};

struct ModelReport {
  DeviceInfo device;
  std::int64_t parameters = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t bytes_per_token = 0;
  std::int64_t peak_rss = 0;
  double load_seconds = 0.0;
  std::vector<PromptReport> prompts = {};
  DType cache = DType::kF32;
  std::string weights = {};  // stored, bf16, q8, ...

  double weight_gbs(const PromptReport& prompt) const {
    return static_cast<double>(bytes_per_token) * prompt.decode_rate() * 1e-9;
  }
};

// The bytes of weights that the step of one token reads: all weights that its ops use, but only one
// row of a table that is only looked up.
Result<std::int64_t> bytes_per_token(const Transformer& model) {
  VOLTA_TRY(const Graph graph, build_cached_graph(model.config(), {.lora = model.lora()}));
  std::set<std::string> whole, rows;
  for (const Node& node : graph.nodes()) {
    for (const ValueId input : node.inputs) {
      const Value& value = graph.value(input);
      if (value.kind != ValueKind::kParameter) continue;
      (std::holds_alternative<Embedding>(node.op) ? rows : whole).insert(value.name);
    }
  }
  std::int64_t bytes = 0;
  for (const auto& [name, weight] : model.weights()) {
    if (whole.contains(name)) {
      bytes += weight.bytes();
    } else if (rows.contains(name)) {
      bytes += weight.bytes() / std::max<std::int64_t>(weight.shape()[0], 1);
    }
  }
  return bytes;
}

// The format of the weights in use. It is the requested one, but quantised weights keep the format
// of their file. If a file mixes formats, all of them are named, the one with the most bytes first.
std::string weights_of(const Transformer& model, const std::string& asked) {
  std::map<std::string_view, std::int64_t> bytes;
  for (const auto& [name, weight] : model.weights()) {
    const Quant quant = weight.spec().encoding.quant;
    if (quant != Quant::kNone) bytes[format_info(quant).name] += weight.bytes();
  }
  std::vector<std::pair<std::int64_t, std::string_view>> formats;
  formats.reserve(bytes.size());
  for (const auto& [name, size] : bytes) formats.emplace_back(size, name);
  std::ranges::sort(formats, std::greater<>());
  std::string text;
  for (const auto& [size, name] : formats) {
    if (!text.empty()) text += '+';
    text += name;
  }
  return text.empty() ? asked : text;
}

Status measure(Generator& generator, const TransformerConfig& config,
               const BenchModelOptions& options, std::uint64_t seed, bool count,
               PromptReport& report) {
  const std::int64_t tokens = std::min(options.runs.tokens, config.context - report.length);
  const GenerationRequest request = random_request(config, report.length, tokens, seed);
  const GenerationCallbacks until_interrupted{
      .token = [](const TokenEvent&) { return !interrupted(); },
      .prompt = [](const PromptEvent&) { return !interrupted(); },
      .finished = {}};
  VOLTA_TRY(generator.generate(std::span(&request, 1), until_interrupted));
  if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
  if (!count) return {};
  const GenerationTiming& timing = generator.timing();
  report.first_token.push_back(timing.first_token_seconds);
  const std::vector<double>& seconds = timing.token_seconds;
  report.token.insert(report.token.end(), seconds.begin(), seconds.end());
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  if (total > 0.0) report.decode.push_back(static_cast<double>(seconds.size()) / total);
  return {};
}

Result<ModelReport> run_bench(const Transformer& model, const BenchModelOptions& options,
                              std::uint64_t seed, DType dtype, DType cache_dtype) {
  const TransformerConfig& config = model.config();
  ModelReport report{.device = model.device()->info(),
                     .parameters = model.parameter_count(),
                     .cache = cache_dtype};
  VOLTA_TRY(const auto lengths,
            prompt_lengths(options.runs.lengths, kUsualPrompts, config.context, "--prompt"));
  note_clipped(lengths, options.runs.tokens, config.context);
  const std::int64_t longest = std::ranges::max(lengths) + options.runs.tokens;
  VOLTA_TRY(Generator generator,
            Generator::create(model, {.capacity = capacity_for(config, longest),
                                      .cache_dtype = cache_dtype,
                                      .compute_dtype = dtype}));
  for (const std::int64_t length : lengths) {
    report.prompts.push_back({.length = length, .first_token = {}, .token = {}, .decode = {}});
  }
  for (std::int64_t run = 0; run < options.runs.warmup + options.runs.runs; ++run) {
    for (PromptReport& prompt : report.prompts) {
      VOLTA_TRY(measure(generator, config, options, seed, run >= options.runs.warmup, prompt));
    }
  }
  report.weight_bytes = generator.memory().weight_bytes;
  VOLTA_TRY(report.bytes_per_token, bytes_per_token(model));
  report.peak_rss = peak_rss_bytes();
  return report;
}

std::string to_text(const ModelReport& report) {
  std::string text = fmt::format(
      "{} parameters on {} ({}, {}), volta {}\n"
      "weights {}, of which a token reads {}\nloaded in {}, peak memory {}\n\n"
      "{:>7} {:>11} {:>12} {:>10} {:>10} {:>10} {:>8}\n",
      format_count(report.parameters), report.device.name, report.device.isa,
      counted(report.device.threads, "thread"), version_with_hash(),
      format_bytes(report.weight_bytes), format_bytes(report.bytes_per_token),
      format_duration(report.load_seconds), format_bytes(report.peak_rss), "prompt", "first token",
      "prefill t/s", "token", "p95", "tokens/s", "GB/s");
  for (const PromptReport& prompt : report.prompts) {
    text += fmt::format("{:>7} {:>11} {:>12.1f} {:>10} {:>10} {:>10.1f} {:>8.1f}\n", prompt.length,
                        format_duration(quantile(prompt.first_token, 0.5)), prompt.prefill_rate(),
                        format_duration(quantile(prompt.token, 0.5)),
                        format_duration(quantile(prompt.token, 0.95)), prompt.decode_rate(),
                        report.weight_gbs(prompt));
  }
  return text;
}

std::string to_json(const ModelReport& report, const Globals& globals,
                    const BenchModelOptions& options) {
  JsonWriter json = begin_report(report.device);
  json.field("weights", report.weights);
  json.field("dtype", globals.dtype).field("kv_cache_dtype", dtype_name(report.cache));
  json.field("seed", globals.seed);
  json.field("runs", options.runs.runs).field("tokens", options.runs.tokens);
  json.field("parameters", report.parameters).field("weight_bytes", report.weight_bytes);
  json.field("bytes_per_token", report.bytes_per_token);
  json.field("load_s", report.load_seconds).field("peak_rss_bytes", report.peak_rss);
  json.key("prompts").begin_array();
  for (const PromptReport& prompt : report.prompts) {
    json.begin_object().field("prompt", prompt.length);
    json.field("first_token_s", quantile(prompt.first_token, 0.5));
    json.field("prefill_tokens_per_s", prompt.prefill_rate());
    json.field("token_s", quantile(prompt.token, 0.5));
    json.field("token_p95_s", quantile(prompt.token, 0.95));
    json.field("decode_tokens_per_s", prompt.decode_rate());
    json.field("weights_gb_per_s", report.weight_gbs(prompt)).end_object();
  }
  json.end_array().end_object();
  return std::move(json).take() + "\n";
}

Status bench_model(const Globals& globals, const BenchModelOptions& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const WeightOptions wanted, weight_options(globals));
  VOLTA_TRY(const Session session, Session::create(globals));
  VOLTA_TRY(const DType cache_dtype, kv_cache_dtype(options.kv_cache_dtype, session, dtype));
  note_slow_products(session, dtype);
  VOLTA_TRY(const ModelSource source, open_model(options.model, interrupted));
  const double begin = monotonic_seconds();
  VOLTA_TRY(const Transformer model,
            load_adapted_model(source, options.adapter, session.device(), wanted));
  const double loaded = monotonic_seconds() - begin;
  VOLTA_TRY(ModelReport report, run_bench(model, options, globals.seed, dtype, cache_dtype));
  report.weights = weights_of(model, globals.weights);
  report.load_seconds = loaded;
  VOLTA_TRY(session.finish());
  return print(output == Output::kJson ? to_json(report, globals, options) : to_text(report));
}

}  // namespace

void add_bench_model(Command& bench, Globals& globals, Action& action) {
  Command* command = bench.add_subcommand("model", "how fast a model reads prompts and generates");
  auto options = std::make_shared<BenchModelOptions>();
  command->add_option("model", options->model, kModelHelp)->required();
  add_adapter_options(*command, options->adapter);
  add_bench_runs(*command, options->runs, "--prompt", kUsualPrompts);
  add_kv_cache_dtype(*command, options->kv_cache_dtype);
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return bench_model(globals, *options); };
  });
}

}  // namespace volta::cli
