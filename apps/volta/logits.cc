// volta logits: writes the logits of every token of given sequences to a file, for comparisons with
// other programs.
#include <fmt/format.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "formats/model_source.h"
#include "formats/safetensors.h"
#include "formats/token_rows.h"
#include "nn/sequence_scorer.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

struct LogitsOptions {
  std::string model;
  AdapterOptions adapter;
  std::string ids;
  std::string out;
};

Result<TokenRows> load_ids(const LogitsOptions& options, const TransformerConfig& config) {
  auto loaded = load_token_rows(options.ids, config.vocab_size, 1);
  if (!loaded && loaded.error().code() == ErrorCode::kNotFound) {  // Others take "1,2,3" here.
    return fail(ErrorCode::kNotFound,
                fmt::format("--ids: {}; give a safetensors file with input_ids [batch, time]",
                            loaded.error().message()));
  }
  VOLTA_TRY(TokenRows rows, std::move(loaded));
  if (rows.length > config.context) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: sequences of {} tokens; the model's context is {}", options.ids,
                            rows.length, config.context));
  }
  return rows;
}

Status logits(const Globals& globals, const LogitsOptions& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const WeightOptions wanted, weight_options(globals));
  VOLTA_TRY(const Session session, Session::create(globals));
  note_slow_products(session, dtype, false);
  VOLTA_TRY(const ModelSource source, open_model(options.model, interrupted));
  VOLTA_TRY(const TransformerConfig config, source.config());
  VOLTA_TRY(const TokenRows rows, load_ids(options, config));
  VOLTA_TRY(check_result_file(globals, options.out, "--out"));
  VOLTA_TRY(make_folder_of(options.out, "--out"));
  // Created before anything is computed, so that an error in writing is reported at once.
  const TensorSpec spec{DType::kF32, Shape(rows.count, rows.length, config.vocab_size)};
  VOLTA_TRY(SafetensorsWriter file,
            SafetensorsWriter::create(options.out, {{"logits", spec}}, {}, existing_file(globals)));
  VOLTA_TRY(Transformer model,
            load_adapted_model(source, options.adapter, session.device(), wanted));
  const auto sink = [&](std::span<const float> values) -> Status {
    if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted; nothing was written");
    return file.write(std::as_bytes(values));
  };
  VOLTA_TRY(compute_logits(model, rows.ids, rows.count, rows.length, dtype, sink));
  VOLTA_TRY(file.finish());
  VOLTA_TRY(session.finish(options.out));
  if (output == Output::kText) {
    return print(fmt::format("{}: logits {}, {}\n", options.out, to_string(spec),
                             format_bytes(spec.bytes())));
  }
  JsonWriter json;
  json.begin_object().field("out", options.out).field("batch", rows.count);
  json.field("time", rows.length).field("vocab", config.vocab_size).end_object();
  return print(json.text() + "\n");
}

}  // namespace

void add_logits(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand("logits", "a model's logits of given token ids");
  auto options = std::make_shared<LogitsOptions>();
  command->add_option("model", options->model, kModelHelp)->required();
  add_adapter_options(*command, options->adapter);
  command->add_option("--ids", options->ids, "safetensors file with input_ids [batch, time]")
      ->required()
      ->not_a_stream();
  command->add_option("--out", options->out, "safetensors file for logits [batch, time, vocab]")
      ->required()
      ->check(refuse_empty)
      ->not_a_stream();
  command->add_flag("--force", globals.force, "replace the file of --out");
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return logits(globals, *options); };
  });
}

}  // namespace volta::cli
