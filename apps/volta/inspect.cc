// volta inspect: what a model is made of, and the memory it needs.
#include <fmt/format.h>

#include <memory>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "io/model_folder.h"
#include "io/safetensors.h"
#include "io/weight_files.h"
#include "nn/kv_cache.h"

namespace volta::cli {
namespace {

struct Options {
  std::string model;
  std::int64_t context = 0;
  std::int64_t batch = 1;
  bool tensors = false;
};

// What is known from the headers alone: no weight is read.
struct Report {
  TransformerConfig config;
  std::vector<SafetensorsEntry> tensors;
  std::int64_t parameters = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t cache_bytes = 0;
  std::int64_t context = 0;
};

std::string architecture(const TransformerConfig& c) {
  return fmt::format(
      "{} layers, {} wide, {} heads ({} key/value) of {}, FFN {} ({}{}), {} positions, {} norm, "
      "context {}, vocabulary {}, output {}",
      c.layers, c.dim, c.heads, c.kv_heads, c.head_dim, c.ffn,
      c.ffn_kind == FfnKind::kGated ? "gated " : "",
      c.activation == Activation::kRelu   ? "ReLU"
      : c.activation == Activation::kSilu ? "SiLU"
                                          : "GELU",
      c.position == PositionKind::kLearned ? "learned" : "rotary",
      c.norm == NormKind::kLayer ? "layer" : "RMS", c.context, c.vocab_size,
      c.tied_output ? "tied" : "free");
}

std::string to_text(const Report& report, const Options& options) {
  std::string text = fmt::format("{}\n", architecture(report.config));
  text += fmt::format("{} parameters ({}), weights {}\n", format_count(report.parameters),
                      report.parameters, format_bytes(report.weight_bytes));
  text += fmt::format("KV cache at context {}, batch {}: {}\n", report.context, options.batch,
                      format_bytes(report.cache_bytes));
  if (!options.tensors) return text;
  for (const SafetensorsEntry& tensor : report.tensors) {
    text += fmt::format("  {:<48} {:<20} {:>12}\n", tensor.name, to_string(tensor.spec),
                        format_bytes(tensor.spec.bytes()));
  }
  return text;
}

std::string to_json(const Report& report, const Options& options) {
  JsonWriter json;
  json.begin_object().field("architecture", architecture(report.config));
  json.field("parameters", report.parameters).field("weight_bytes", report.weight_bytes);
  json.field("context", report.context).field("batch", options.batch);
  json.field("cache_bytes", report.cache_bytes).key("tensors").begin_array();
  for (const SafetensorsEntry& tensor : report.tensors) {
    json.begin_object().field("name", tensor.name);
    json.field("dtype", dtype_name(tensor.spec.dtype)).key("shape").begin_array();
    for (int i = 0; i < tensor.spec.shape.rank(); ++i) json.value(tensor.spec.shape[i]);
    json.end_array().field("bytes", tensor.spec.bytes()).end_object();
  }
  json.end_array().end_object();
  return std::move(json).take() + "\n";
}

std::string to_csv(const Report& report) {
  std::string text = "name,dtype,elements,bytes\n";
  for (const SafetensorsEntry& tensor : report.tensors) {
    text += fmt::format("{},{},{},{}\n", tensor.name, dtype_name(tensor.spec.dtype),
                        tensor.spec.shape.elements(), tensor.spec.bytes());
  }
  return text;
}

Status inspect(const Globals& globals, const Options& options) {
  VOLTA_TRY(const Output output,
            parse_output(globals, {Output::kText, Output::kJson, Output::kCsv}));
  VOLTA_TRY(refuse_profile(globals));
  VOLTA_TRY(const std::string directory, find_model(options.model));
  Report report;
  VOLTA_TRY(report.config, load_model_config(directory));
  VOLTA_TRY(const WeightFiles files, WeightFiles::open(directory, report.config));
  report.tensors = files.entries(report.config);
  for (const SafetensorsEntry& tensor : report.tensors) report.weight_bytes += tensor.spec.bytes();
  report.parameters = parameter_count(report.config);
  report.context = options.context == 0 ? report.config.context : options.context;
  VOLTA_TRY(report.cache_bytes, TransformerKvCache::bytes_for(report.config, options.batch,
                                                              report.context, DType::kF32));
  switch (output) {
    case Output::kJson:
      return print(to_json(report, options));
    case Output::kCsv:
      return print(to_csv(report));
    default:
      return print(to_text(report, options));
  }
}

}  // namespace

void add_inspect(CLI::App& app, Globals& globals, Action& action) {
  CLI::App* command = app.add_subcommand("inspect", "what a model is made of");
  auto options = std::make_shared<Options>();
  command->add_option("model", options->model, "model folder, or the folder of a training run")
      ->required();
  command->add_option("--context", options->context, "tokens for the memory estimate")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  command->add_option("--batch", options->batch, "sequences for the memory estimate")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}));
  command->add_flag("--tensors", options->tensors, "list every tensor");
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return inspect(globals, *options); };
  });
}

}  // namespace volta::cli
