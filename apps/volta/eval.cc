// volta eval: loss and perplexity of a model on a text.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <span>

#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "io/model_folder.h"
#include "io/tokenizer.h"
#include "train/dataset.h"
#include "train/evaluator.h"

namespace volta::cli {
namespace {

struct Options {
  std::string model;
  std::string data;
  std::int64_t batch = 8;
  std::int64_t context = 0;
  double val_fraction = 1.0;
};

Status evaluate(const Globals& globals, const Options& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  if (is_example_file(options.data)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--data {}: eval reads text; token ids are for train", options.data));
  }
  VOLTA_TRY(const Session session, Session::create(globals));
  VOLTA_TRY(const std::string directory, find_model(options.model));
  VOLTA_TRY(Transformer model,
            load_model(directory, session.device(), {.packed = true, .dtype = dtype}));
  const std::int64_t context = options.context == 0 ? model.config().context : options.context;
  if (context > model.config().context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--context {}: the model's is {}", context, model.config().context));
  }
  VOLTA_TRY(const auto tokenizer, load_tokenizer(directory));
  VOLTA_TRY(const Dataset data, load_text(options.data, "", tokenizer, options.val_fraction));
  const std::span<const std::int32_t> tokens = *data.validation;
  if (std::ssize(tokens) <= context) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {} tokens to evaluate, but a window takes {}; give a longer text, "
                            "a larger --val-fraction or a smaller --context",
                            options.data, tokens.size(), context + 1));
  }
  VOLTA_TRY(Evaluator evaluator, Evaluator::create(model, options.batch, context, dtype));
  VOLTA_TRY(const double loss, evaluator.mean_loss(tokens, interrupted));
  VOLTA_TRY(session.finish());
  const std::size_t windows = (tokens.size() - 1) / static_cast<std::size_t>(context);
  const std::size_t counted = windows * static_cast<std::size_t>(context);
  if (output == Output::kText) {
    return print(fmt::format("loss {:.5f}  perplexity {:.4f}  over {} tokens in {} windows of {}\n",
                             loss, std::exp(loss), counted, windows, context));
  }
  JsonWriter json;
  json.begin_object().field("loss", loss).field("perplexity", std::exp(loss));
  json.field("tokens", counted).field("windows", windows).field("context", context).end_object();
  return print(json.text() + "\n");
}

}  // namespace

void add_eval(CLI::App& app, Globals& globals, Action& action) {
  CLI::App* command = app.add_subcommand("eval", "loss and perplexity of a model on a text");
  auto options = std::make_shared<Options>();
  command->add_option("model", options->model, "model folder, or the folder of a training run")
      ->required();
  command->add_option("--data", options->data, "text file")->required();
  command->add_option("--batch", options->batch, "windows at once (default 8)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}));
  command->add_option("--context", options->context, "tokens a window (default: the model's)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  command
      ->add_option("--val-fraction", options->val_fraction,
                   "evaluate only this last part of the text (default 1)")
      ->check([](const std::string& text) {
        const auto fraction = parse_float(text, "value", 0.0, 1.0);
        return fraction ? std::string() : std::string(fraction.error().message());
      });
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return evaluate(globals, *options); };
  });
}

}  // namespace volta::cli
