// volta eval: loss, perplexity and bits per byte of a model on texts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "formats/model_source.h"
#include "progress.h"
#include "text/tokenizer.h"
#include "train/dataset.h"
#include "train/evaluator.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

// Limits for the defaults: the model's context, but no more than suits most machines.
constexpr std::int64_t kEvalContext = 4096;
constexpr std::int64_t kDefaultBatch = 8;
constexpr std::int64_t kDefaultBatchTokens = 8192;
constexpr std::int64_t kMaxInputBytes = std::int64_t{1} << 31;

struct EvalOptions {
  std::string model;
  AdapterOptions adapter;
  std::vector<std::string> data;
  std::int64_t batch = 0;
  std::int64_t context = 0;
  std::int64_t stride = 0;
  double val_fraction = 1.0;
};

// The length of the windows, the distance between their beginnings, and how many run at once.
struct Windows {
  std::int64_t context = 0;
  std::int64_t stride = 0;
  std::int64_t batch = 0;
};

// The score of one file, or of all files together.
struct Evaluated {
  std::string path;
  TextScore score;
  std::int64_t bytes = 0;

  double loss() const { return score.nats / static_cast<double>(score.tokens); }
  double perplexity() const { return std::exp(loss()); }
  double bits_per_byte() const {
    return score.nats / std::log(2.0) / static_cast<double>(std::max<std::int64_t>(bytes, 1));
  }
};

Result<Windows> windows_of(const EvalOptions& options, const TransformerConfig& config) {
  Windows windows;
  windows.context = options.context > 0 ? options.context : std::min(config.context, kEvalContext);
  if (windows.context > config.context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--context {}: the model's is {}", windows.context, config.context));
  }
  windows.stride = options.stride > 0 ? options.stride : windows.context;
  if (windows.stride > windows.context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--stride {}: at most a window's {} tokens, or some would be left out",
                            windows.stride, windows.context));
  }
  windows.batch = options.batch > 0 ? options.batch
                                    : std::clamp(kDefaultBatchTokens / windows.context,
                                                 std::int64_t{1}, kDefaultBatch);
  return windows;
}

std::string describe(const std::string& path, const TextScore& score, std::int64_t windows,
                     double seconds) {
  if (score.windows == 0) return fmt::format("{}: window 0/{}", path, windows);
  const double left =
      seconds / static_cast<double>(score.windows) * static_cast<double>(windows - score.windows);
  return fmt::format("{}: window {}/{}  loss {:.4f}  {}", path, score.windows, windows,
                     score.nats / static_cast<double>(score.tokens), time_left(left));
}

Result<HeldOutText> read_text(const std::string& path, const Tokenizer& tokenizer,
                              double fraction) {
  if (!is_stream(path)) return load_held_out_text(path, tokenizer, fraction, interrupted);
  VOLTA_TRY(const std::string text, read_input(path, kMaxInputBytes));
  return hold_out_text(text, input_name(path), tokenizer, fraction);
}

Result<Evaluated> evaluate_file(const std::string& path, const EvalOptions& options,
                                const ModelSource& source, const Tokenizer& tokenizer,
                                const Transformer& model, const Windows& windows, DType dtype) {
  VOLTA_TRY(const HeldOutText text, read_text(path, tokenizer, options.val_fraction));
  VOLTA_TRY(source.check_own_ids(text.tokens, model.config().vocab_size));
  // A short text needs no long window, and a few windows need no large batch.
  const std::int64_t targets = std::ssize(text.tokens) - 1;
  const std::int64_t time = std::min(windows.context, targets);
  const std::int64_t stride = std::min(windows.stride, time);
  const std::int64_t count = 1 + ceil_div(targets - time, stride);
  VOLTA_TRY(Evaluator evaluator,
            Evaluator::create(model, std::min(windows.batch, count), time, dtype));
  const std::string name = input_name(path);
  Progress progress;
  const double begun = monotonic_seconds();
  const auto go_on = [&](const TextScore& so_far, std::int64_t all) {
    progress.show([&] { return describe(name, so_far, all, monotonic_seconds() - begun); });
    return !interrupted();
  };
  auto score = evaluator.score(text.tokens, stride, go_on);
  if (!score) return std::unexpected(std::move(score).error().with_context(name));
  return Evaluated{.path = path, .score = *score, .bytes = text.bytes};
}

std::string to_text(const Evaluated& result, const Windows& windows) {
  std::string text = fmt::format(
      "loss {:.5f}  perplexity {:.4f}  bits per byte {:.4f}  over {} in {} of {}", result.loss(),
      result.perplexity(), result.bits_per_byte(), counted(result.score.tokens, "token"),
      counted(result.score.windows, "window"), windows.context);
  if (windows.stride < windows.context) text += fmt::format(", stride {}", windows.stride);
  return text + "\n";
}

std::string to_text(const std::vector<Evaluated>& files, const Evaluated& total,
                    const Windows& windows) {
  if (files.size() == 1) return to_text(total, windows);
  std::string text;
  for (const Evaluated& file : files) text += file.path + ": " + to_text(file, windows);
  return text + "all: " + to_text(total, windows);
}

void write_fields(JsonWriter& json, const Evaluated& result) {
  json.field("loss", result.loss()).field("perplexity", result.perplexity());
  json.field("bits_per_byte", result.bits_per_byte()).field("tokens", result.score.tokens);
  json.field("bytes", result.bytes).field("windows", result.score.windows);
}

std::string to_json(const std::vector<Evaluated>& files, const Evaluated& total,
                    const Windows& windows) {
  JsonWriter json;
  json.begin_object();
  write_fields(json, total);
  json.field("context", windows.context).field("stride", windows.stride);
  json.key("files").begin_array();
  for (const Evaluated& file : files) {
    json.begin_object().field("path", file.path);
    write_fields(json, file);
    json.end_object();
  }
  json.end_array().end_object();
  return std::move(json).take() + "\n";
}

Status evaluate(const Globals& globals, const EvalOptions& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(const DType dtype, compute_dtype(globals));
  VOLTA_TRY(const WeightOptions wanted, weight_options(globals));
  for (const std::string& path : options.data) {
    const DataKind kind = data_kind(path);
    if (kind == DataKind::kText || kind == DataKind::kChats) continue;  // Lines of JSON are text.
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--data {}: eval reads text; token ids are for train", path));
  }
  VOLTA_TRY(const Session session, Session::create(globals));
  note_slow_products(session, dtype, false);
  VOLTA_TRY(const ModelSource source, open_model(options.model, interrupted));
  VOLTA_TRY(const TransformerConfig config, source.config());
  VOLTA_TRY(const Windows windows, windows_of(options, config));
  VOLTA_TRY(const auto tokenizer, source.tokenizer(interrupted));
  VOLTA_TRY(Transformer model,
            load_adapted_model(source, options.adapter, session.device(), wanted));
  std::vector<Evaluated> files;
  Evaluated total;
  for (const std::string& path : options.data) {
    VOLTA_TRY(Evaluated file,
              evaluate_file(path, options, source, *tokenizer, model, windows, dtype));
    total.score.nats += file.score.nats;
    total.score.tokens += file.score.tokens;
    total.score.windows += file.score.windows;
    total.bytes += file.bytes;
    files.push_back(std::move(file));
  }
  VOLTA_TRY(session.finish());
  return print(output == Output::kJson ? to_json(files, total, windows)
                                       : to_text(files, total, windows));
}

}  // namespace

void add_eval(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand("eval", "loss and perplexity of a model on texts");
  auto options = std::make_shared<EvalOptions>();
  command->add_option("model", options->model, kModelHelp)->required();
  add_adapter_options(*command, options->adapter);
  command
      ->add_option("--data", options->data,
                   "text file, - for standard input; repeat it for several")
      ->required()
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--batch", options->batch, "windows at once (default: 8 or 8192 tokens)")
      ->check(range(std::int64_t{1}, std::int64_t{4096}));
  command
      ->add_option("--context", options->context,
                   "tokens a window (default: the model's, at most 4096)")
      ->check(range(std::int64_t{1}, std::int64_t{1} << 24));
  command
      ->add_option("--stride", options->stride,
                   "tokens between windows: each scores its last N (default: the context)")
      ->check(range(std::int64_t{1}, std::int64_t{1} << 24));
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
