// volta inspect: shows the architecture, the tensors and the memory of a model.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "formats/model_config.h"
#include "formats/model_source.h"
#include "formats/safetensors.h"
#include "nn/memory_estimate.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

// The type in which a tensor's elements are stored.
std::string type_name(const TensorSpec& spec) {
  if (!spec.encoding.quantized()) return std::string(dtype_name(spec.dtype));
  return std::string(format_info(spec.encoding.quant).elements);
}

// A row of the list of tensors. The size ends at the last column unless a long name moves it.
std::string tensor_line(const SafetensorsEntry& tensor) {
  constexpr std::size_t kColumns = 79;
  const std::string text = fmt::format("  {:<47} {}{}", tensor.name, type_name(tensor.spec),
                                       to_string(tensor.spec.shape));
  const std::size_t room = kColumns - std::min(kColumns, text.size());
  return fmt::format("{} {:>{}}\n", text, format_bytes(tensor.spec.bytes()),
                     std::max<std::size_t>(room, 1) - 1);
}

std::string_view activation_text(const TransformerConfig& c) {
  const Activation activation = c.activation;
  if (c.activation_scale != 1.0f) return "quick GELU";  // x sigmoid(1.702 x).
  if (activation == Activation::kRelu) return "ReLU";
  if (activation == Activation::kSilu) return "SiLU";
  return activation == Activation::kGeluTanh ? "GELU (tanh)" : "GELU";
}

// ", window 512 in 22 of 26 layers"; empty when every layer sees the whole context.
std::string window_text(const TransformerConfig& c) {
  if (c.window == 0) return "";
  std::int64_t layers = 0;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    layers += c.layer_window(layer) > 0 ? 1 : 0;
  }
  if (layers == 0) return "";
  const std::string where =
      layers < c.layers ? fmt::format(" in {} of {} layers", layers, c.layers) : "";
  return fmt::format(", window {}{}", c.window, where);
}

struct InspectOptions {
  std::string model;
  std::int64_t context = 0;
  std::int64_t batch = 1;
  bool tensors = false;
  std::string kv_cache_dtype{};
};

// Totals over the tensors of one type.
struct TypeTotal {
  std::int64_t tensors = 0;
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
};

// What the headers of the files tell; no weight is read.
struct InspectReport {
  TransformerConfig config;
  std::vector<SafetensorsEntry> tensors;
  std::map<std::string, TypeTotal> types;  // By the type's name.
  std::int64_t parameters = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t context = 0;
  DType compute = DType::kF32;
  MemoryEstimate memory;
};

std::string architecture(const TransformerConfig& c) {
  return fmt::format(
      "{}, {} wide, {} ({} key/value) of {}, FFN {} ({}{}), {} positions, {} norm, "
      "context {}{}, vocabulary {}, output {}",
      counted(c.layers, "layer"), c.dim, counted(c.heads, "head"), c.kv_heads, c.head_dim, c.ffn,
      c.ffn_kind == FfnKind::kGated ? "gated " : "", activation_text(c),
      c.position == PositionKind::kLearned ? "learned" : "rotary",
      c.norm == NormKind::kLayer ? "layer" : "RMS", c.context, window_text(c), c.vocab_size,
      c.tied_output ? "tied to the embedding" : "a matrix of its own");
}

// A list with its commas as lines of at most 80 columns; all but the first are indented.
std::string in_lines(std::string_view list) {
  constexpr std::size_t kColumns = 80;
  constexpr std::string_view kComma = ", ";
  std::string text;
  std::size_t column = 0;
  while (!list.empty()) {
    const std::size_t comma = list.find(kComma);
    const std::string_view item = list.substr(0, comma);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + kComma.size());
    const std::size_t needed = item.size() + (list.empty() ? 0 : 1);  // The comma behind it.
    if (!text.empty() && column + 1 + needed > kColumns) {
      text += "\n   ";
      column = 3;
    }
    if (!text.empty()) text += ' ';
    text += item;
    if (!list.empty()) text += ',';
    column += needed + 1;
  }
  return text + "\n";
}

std::string to_text(const InspectReport& report, const InspectOptions& options) {
  std::string text = in_lines(architecture(report.config));
  std::string weights =
      fmt::format("{} parameters ({}), weights {}", format_count(report.parameters),
                  report.parameters, format_bytes(report.weight_bytes));
  for (const auto& [name, total] : report.types) {
    weights +=
        fmt::format(", {} in {} tensors of {}", format_bytes(total.bytes), total.tensors, name);
  }
  text += in_lines(weights);
  const MemoryEstimate& memory = report.memory;
  text += fmt::format("to generate at context {}, batch {}, computing in {}: {}\n", report.context,
                      options.batch, dtype_name(report.compute), format_bytes(memory.total()));
  text += in_lines(
      fmt::format("  weights {}, KV cache {}, activations {} (up to {} tokens at once), tables {}",
                  format_bytes(memory.weights), format_bytes(memory.cache),
                  format_bytes(memory.activations), memory.rows, format_bytes(memory.tables)));
  if (!options.tensors) return text;
  for (const SafetensorsEntry& tensor : report.tensors) text += tensor_line(tensor);
  return text;
}

std::string to_json(const InspectReport& report, const InspectOptions& options) {
  JsonWriter json;
  json.begin_object().field("architecture", architecture(report.config));
  json.field("family", model_family(report.config)).key("config");
  write_config_fields(json, report.config);
  json.field("parameters", report.parameters).field("weight_bytes", report.weight_bytes);
  json.key("types").begin_array();
  for (const auto& [name, total] : report.types) {
    json.begin_object().field("dtype", name).field("tensors", total.tensors);
    json.field("elements", total.elements).field("bytes", total.bytes).end_object();
  }
  json.end_array().field("context", report.context).field("batch", options.batch);
  const MemoryEstimate& memory = report.memory;
  json.key("memory").begin_object().field("dtype", dtype_name(report.compute));
  json.field("weights", memory.weights).field("cache", memory.cache);
  json.field("activations", memory.activations).field("step_tokens", memory.rows);
  json.field("tables", memory.tables);
  json.field("total", memory.total()).end_object();
  json.key("tensors").begin_array();
  for (const SafetensorsEntry& tensor : report.tensors) {
    json.begin_object().field("name", tensor.name);
    json.field("dtype", type_name(tensor.spec)).key("shape").begin_array();
    for (int i = 0; i < tensor.spec.shape.rank(); ++i) json.value(tensor.spec.shape[i]);
    json.end_array().field("bytes", tensor.spec.bytes()).end_object();
  }
  json.end_array().end_object();
  return std::move(json).take() + "\n";
}

std::string to_csv(const InspectReport& report) {
  std::string text = "name,dtype,elements,bytes\n";
  for (const SafetensorsEntry& tensor : report.tensors) {
    text += fmt::format("{},{},{},{}\n", tensor.name, type_name(tensor.spec),
                        tensor.spec.shape.elements(), tensor.spec.bytes());
  }
  return text;
}

Status inspect(const Globals& globals, const InspectOptions& options) {
  VOLTA_TRY(const Output output,
            parse_output(globals, {Output::kText, Output::kJson, Output::kCsv}));
  VOLTA_TRY(refuse_unused(globals, "--profile"));
  InspectReport report;
  VOLTA_TRY(report.compute, compute_dtype(globals));
  VOLTA_TRY(const WeightOptions wanted, weight_options(globals));
  VOLTA_TRY(const Session session, Session::create(globals));
  VOLTA_TRY(const DType cache_dtype,
            kv_cache_dtype(options.kv_cache_dtype, session, report.compute));
  VOLTA_TRY(const ModelSource source, open_model(options.model, interrupted));
  VOLTA_TRY(report.config, source.config());
  VOLTA_TRY(const auto weights, source.weights(report.config));
  for (const ParameterInfo& parameter : parameters(report.config)) {
    VOLTA_TRY(const TensorSpec spec, weights->spec(parameter));
    report.tensors.push_back({parameter.name, spec});
    TypeTotal& total = report.types[type_name(spec)];
    ++total.tensors;
    total.elements += spec.shape.elements();
    total.bytes += spec.bytes();
    report.weight_bytes += spec.bytes();
  }
  report.parameters = parameter_count(report.config);
  report.context = options.context == 0 ? report.config.context : options.context;
  VOLTA_TRY(const auto loaded, loaded_specs(report.config, *weights, *session.device(), wanted));
  VOLTA_TRY(report.memory, estimate_memory(report.config, loaded,
                                           {.slots = options.batch,
                                            .capacity = report.context,
                                            .cache_dtype = cache_dtype,
                                            .compute_dtype = report.compute},
                                           *session.device()));
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

void add_inspect(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand("inspect", "what a model is made of");
  auto options = std::make_shared<InspectOptions>();
  command->add_option("model", options->model, kModelHelp)->required();
  command->add_option("--context", options->context, "tokens for the memory estimate")
      ->check(range(std::int64_t{1}, std::int64_t{1} << 24));
  command->add_option("--batch", options->batch, "sequences for the memory estimate")
      ->check(range(std::int64_t{1}, std::int64_t{65536}));
  add_kv_cache_dtype(*command, options->kv_cache_dtype);
  command->add_flag("--tensors", options->tensors, "list every tensor");
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return inspect(globals, *options); };
  });
}

}  // namespace volta::cli
