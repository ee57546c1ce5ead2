// volta quantize: writes a model folder with narrower weights and reports their effect on size and
// loss.
#include "formats/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "formats/gguf/gguf_file.h"
#include "formats/model_source.h"
#include "progress.h"
#include "text/tokenizer.h"
#include "train/dataset.h"
#include "train/evaluator.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

struct QuantizeOptions {
  std::string model;
  std::string out;
  std::string data;
  std::int64_t context = 0;
  double val_fraction = 1.0;
};

// The sizes of the weights and, with a text, the loss before and after.
struct QuantizeReport {
  std::vector<QuantizedTensor> tensors;
  std::optional<double> loss_before, loss_after;

  std::int64_t bytes(TensorSpec QuantizedTensor::* spec) const {
    std::int64_t sum = 0;
    for (const QuantizedTensor& tensor : tensors) sum += (tensor.*spec).bytes();
    return sum;
  }
};

Result<double> loss_of(const ModelSource& source, const QuantizeOptions& options,
                       const std::shared_ptr<Device>& device, DType dtype) {
  VOLTA_TRY(const auto tokenizer, source.tokenizer(interrupted));
  VOLTA_TRY(const Transformer model, source.load(device, {.packed = true}));
  VOLTA_TRY(const HeldOutText text,
            load_held_out_text(options.data, *tokenizer, options.val_fraction));
  const std::int64_t longest = options.context > 0 ? options.context : model.config().context;
  const std::int64_t time = std::min(
      {longest, model.config().context, static_cast<std::int64_t>(std::ssize(text.tokens)) - 1});
  VOLTA_TRY(Evaluator evaluator, Evaluator::create(model, 1, time, dtype));
  VOLTA_TRY(const TextScore score,
            evaluator.score(text.tokens, time,
                            [](const TextScore&, std::int64_t) { return !interrupted(); }));
  return score.nats / static_cast<double>(score.tokens);
}

// "int8 by 64" of "f32[512, 64] as int8 by 64", "bf16" of "bf16[512, 64]": the shape stays the
// same.
std::string format_of(const TensorSpec& spec) {
  const std::string text = to_string(spec);
  const std::size_t as = text.find(" as ");
  return as == std::string::npos ? text.substr(0, text.find('[')) : text.substr(as + 4);
}

std::string to_text(const QuantizeReport& report, const QuantizeOptions& options) {
  std::string text;
  for (const QuantizedTensor& tensor : report.tensors) {
    if (tensor.before == tensor.after) continue;
    text += fmt::format("{:<46} {:<16} error {:.2e}\n", tensor.name, format_of(tensor.after),
                        tensor.error);
  }
  text += fmt::format("{}: weights {} -> {}\n", options.out,
                      format_bytes(report.bytes(&QuantizedTensor::before)),
                      format_bytes(report.bytes(&QuantizedTensor::after)));
  if (report.loss_before) {
    text += fmt::format("loss {:.5f} -> {:.5f} ({:+.5f})\n", *report.loss_before,
                        *report.loss_after, *report.loss_after - *report.loss_before);
  }
  return text;
}

std::string to_json(const QuantizeReport& report) {
  JsonWriter json;
  json.begin_object().key("tensors").begin_array();
  for (const QuantizedTensor& tensor : report.tensors) {
    json.begin_object().field("name", tensor.name).field("before", to_string(tensor.before));
    json.field("after", to_string(tensor.after)).field("error", tensor.error).end_object();
  }
  json.end_array().field("bytes_before", report.bytes(&QuantizedTensor::before));
  json.field("bytes_after", report.bytes(&QuantizedTensor::after));
  if (report.loss_before) {
    json.field("loss_before", *report.loss_before).field("loss_after", *report.loss_after);
  }
  json.end_object();
  return std::move(json).take() + "\n";
}

Status quantize(const Globals& globals, const QuantizeOptions& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(refuse_unused(globals, "--profile"));
  if (options.data.empty() && globals.has("--dtype")) {
    return fail(ErrorCode::kInvalidArgument,
                "--dtype is what the losses are computed in: it goes with --data (--weights is "
                "what the new model is stored as)");
  }
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const WeightFormat format, weight_format(globals));
  if (globals.weights == "stored" || format == WeightFormat{}) {
    return fail(ErrorCode::kInvalidArgument, "--weights: what to store them as: q8, q4 or bf16");
  }
  VOLTA_TRY(const Session session, Session::create(globals));
  VOLTA_TRY(refuse_gguf(options.model));
  VOLTA_TRY(const ModelSource source, open_model(options.model, interrupted));
  VOLTA_TRY(const TransformerConfig config, source.config());
  if (options.context > config.context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--context {}: the model's is {}", options.context, config.context));
  }
  if (!(options.val_fraction > 0.0 && options.val_fraction <= 1.0)) {
    return fail(ErrorCode::kInvalidArgument, "--val-fraction: above 0 and at most 1");
  }
  if (is_gguf_path(options.out)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--out {}: quantize writes a model folder; volta convert writes GGUF "
                            "files",
                            options.out));
  }
  // Checked before the loss is computed, which takes a while.
  VOLTA_TRY(check_output_folder(globals, options.out, source.path()));
  QuantizeReport report;
  if (!options.data.empty()) {
    VOLTA_TRY(report.loss_before, loss_of(source, options, session.device(), dtype));
  }
  Progress progress;
  std::int64_t done = 0;
  const auto on_tensor = [&](const QuantizedTensor& tensor, std::int64_t tensors) {
    ++done;
    progress.show([&] { return fmt::format("{}/{} {}", done, tensors, tensor.name); });
    return !interrupted();
  };
  auto tensors =
      quantize_model(source, options.out, format, *session.device(), on_tensor, globals.force);
  progress.erase();
  VOLTA_TRY(report.tensors, std::move(tensors));
  if (!options.data.empty()) {
    const auto loss_after = [&]() -> Result<double> {
      VOLTA_TRY(const ModelSource quantized, ModelSource::open(options.out));
      return loss_of(quantized, options, session.device(), dtype);
    };
    auto loss = loss_after();
    if (!loss) {
      return std::unexpected(std::move(loss).error().with_context(
          fmt::format("'{}' is complete, but its loss could not be measured", options.out)));
    }
    report.loss_after = *loss;
  }
  VOLTA_TRY(session.finish());
  return print(output == Output::kJson ? to_json(report) : to_text(report, options));
}

}  // namespace

void add_quantize(Command& app, Globals& globals, Action& action) {
  Command* command =
      app.add_subcommand("quantize", "write a model with narrower weights: --weights q8|q4|bf16");
  auto options = std::make_shared<QuantizeOptions>();
  command->add_option("model", options->model, kFolderHelp)->required();
  command->add_option("--out", options->out, "folder of the new model")
      ->required()
      ->check(refuse_empty)
      ->not_a_stream();
  command->add_flag("--force", globals.force,
                    "replace the model that is in --out; other files of the folder stay");
  // It is read twice.
  Option* data =
      command->add_option("--data", options->data, "text: report the loss on it before and after")
          ->not_a_stream();
  command->add_option("--context", options->context, "window of the loss, in tokens")
      ->check(range(std::int64_t{1}, std::int64_t{1} << 24))
      ->needs(data);
  command
      ->add_option("--val-fraction", options->val_fraction,
                   "only this last part of each text, as training holds out")
      ->needs(data);
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return quantize(globals, *options); };
  });
}

}  // namespace volta::cli
