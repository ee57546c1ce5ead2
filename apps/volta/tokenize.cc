// volta tokenize: text to token ids and back. volta tokenizer train: a vocabulary from text.
#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "formats/gguf/gguf_file.h"
#include "formats/hub_cache.h"
#include "formats/model_source.h"
#include "text/tokenizer.h"
#include "text/tokenizers/bpe_trainer.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

constexpr std::int64_t kMaxTextBytes = std::int64_t{4} << 30;

struct TokenizeOptions {
  std::string tokenizer;
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::optional<std::string> ids;
  bool no_special = false;
  bool skip_special = false;
};

struct TrainOptions {
  std::string data;
  std::string out;
  tokenizers::BpeTrainingOptions training;
};

// A tokenizer.json, a folder with one (it needs no model), or any model.
Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const std::string& path) {
  VOLTA_TRY(const std::string place, find_model_path(path));
  const bool is_model =
      is_directory(place) ? !path_exists(join_path(place, "tokenizer.json")) : is_gguf_path(place);
  const bool may_be_missing = is_model || place.ends_with(".json");  // Opening it then fails.
  if (!may_be_missing && !path_exists(place)) return no_model_folder(place);
  if (!is_model) return load_tokenizer(place, interrupted);
  VOLTA_TRY(const ModelSource source, open_model(place, interrupted));
  return source.tokenizer(interrupted);
}

Status decode(const Tokenizer& tokenizer, const TokenizeOptions& options, Output output) {
  std::vector<std::int32_t> ids;
  if (!options.ids->empty()) {
    VOLTA_TRY(ids, parse_ids(*options.ids, "--decode"));
  }
  for (const std::int32_t id : ids) {
    if (id < tokenizer.vocab_size()) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--decode: {}; the vocabulary has ids 0 to {}", id,
                            tokenizer.vocab_size() - 1));
  }
  const std::string text = options.skip_special ? tokenizer.decode(ids) : tokenizer.decode_all(ids);
  if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
  if (output == Output::kText) return print(text + "\n");
  JsonWriter json;
  json.begin_object().field("text", text).end_object();
  return print(std::move(json).take() + "\n");
}

// The ids with commas between them.
Result<std::string> join(std::span<const std::int32_t> ids) {
  std::string line;
  for (const std::int32_t id : ids) {
    if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
    if (!line.empty()) line += ',';
    fmt::format_to(std::back_inserter(line), "{}", id);
  }
  return line;
}

Status tokenize(const Globals& globals, const TokenizeOptions& options) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  VOLTA_TRY(refuse_unused(globals, kNothingRuns));
  VOLTA_TRY(const auto tokenizer, open_tokenizer(options.tokenizer));
  if (options.ids) return decode(*tokenizer, options, output);
  std::string text = options.text.value_or("");
  if (!options.text) {
    VOLTA_TRY(text, read_input(options.file.value_or("-"), kMaxTextBytes));
  }
  VOLTA_TRY(const auto ids,
            options.no_special ? tokenizer->encode(text) : tokenizer->encode_prompt(text));
  if (output == Output::kText) {
    VOLTA_TRY(const std::string line, join(ids));
    return print(line + "\n");
  }
  JsonWriter json;
  json.begin_object().key("ids").begin_array();
  for (const std::int32_t id : ids) {
    if (!interrupted()) json.value(id);
  }
  json.end_array().key("tokens").begin_array();
  for (const std::int32_t id : ids) {
    if (!interrupted()) json.value(tokenizer->token_bytes(id));
  }
  json.end_array().end_object();
  if (interrupted()) return fail(ErrorCode::kInterrupted, "interrupted");
  return print(std::move(json).take() + "\n");
}

// Refuses text that is not UTF-8, because other bytes would be learnt as U+FFFD.
Result<std::string> read_training_text(const std::string& path) {
  VOLTA_TRY(std::string text, read_input(path, kMaxTextBytes));
  const std::string name = input_name(path);
  if (text.empty()) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{} is empty: choose a file with text", name));
  }
  const auto mistake = utf8_mistake(text);
  if (!mistake) return text;
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", name, *mistake));
}

Status train(const Globals& globals, const TrainOptions& options) {
  VOLTA_TRY(parse_output(globals, {Output::kText}));
  VOLTA_TRY(refuse_unused(globals, kNothingRuns));
  if (auto special = tokenizers::check_special_tokens(options.training.special_tokens); !special) {
    return std::unexpected(std::move(special).error().with_context("--special"));
  }
  // Checked before the work: the file can be written.
  const std::string path = join_path(options.out, "tokenizer.json");
  VOLTA_TRY(check_tokenizer_folder(options.out, "--out"));
  VOLTA_TRY(check_output_file(globals, path, "--out"));
  VOLTA_TRY(const std::string text, read_training_text(options.data));
  tokenizers::BpeTrainingOptions training = options.training;
  training.interrupted = interrupted;
  VOLTA_TRY(const std::string json, tokenizers::train_byte_level_bpe(text, training));
  VOLTA_TRY(const auto tokenizer, parse_tokenizer(json, "the new tokenizer"));
  VOLTA_TRY(make_folder_of(path, "--out"));
  VOLTA_TRY(write_file_atomic(path, json, existing_file(globals)));
  note(fmt::format("{}: {} tokens\n", path, tokenizer->vocab_size()));
  return {};
}

}  // namespace

void add_tokenize(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand("tokenize", "text to token ids, and back");
  auto options = std::make_shared<TokenizeOptions>();
  command
      ->add_option("tokenizer", options->tokenizer,
                   fmt::format("tokenizer.json, or a {}", kModelHelp))
      ->required();
  Option* text =
      command->add_option("text", options->text, "text to encode (default: standard input)")
          ->allow_empty();
  Option* file =
      command->add_option("--file", options->file, "encode a file instead, - for standard input");
  Option* decode =
      command->add_option("--decode", options->ids, "ids to decode instead, e.g. 5,6,7")
          ->allow_empty();
  file->excludes(text);
  decode->excludes(text)->excludes(file);
  command
      ->add_flag("--no-special", options->no_special,
                 "encode without the special tokens around a text")
      ->excludes(decode);
  command->add_flag("--skip-special", options->skip_special, "decode without special tokens")
      ->needs(decode);
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return tokenize(globals, *options); };
  });
}

void add_tokenizer(Command& app, Globals& globals, Action& action) {
  Command* parent = app.add_subcommand("tokenizer", "make a tokenizer");
  parent->require_subcommand(1);
  Command* command = parent->add_subcommand("train", "learn a byte-level BPE from a text");
  auto options = std::make_shared<TrainOptions>();
  auto& training = options->training;
  command->add_option("--data", options->data, "text file, - for standard input")
      ->required()
      ->only_once();
  command->add_option("--out", options->out, "folder for tokenizer.json")
      ->required()
      ->check(refuse_empty)
      ->not_a_stream();
  command->add_option("--vocab", training.vocab_size, "tokens in all (default 8192)");
  command->add_option("--min-count", training.min_count, "least count of a pair (default 2)")
      ->check(range(std::int64_t{1}, kMaxPlausibleCount));
  command
      ->add_option("--special", training.special_tokens,
                   "a special token; may be repeated (default <|endoftext|>)")
      ->allow_extra_args(false)
      ->take_all();
  command->add_flag("--force", globals.force, "replace a tokenizer.json that is there");
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return train(globals, *options); };
  });
}

}  // namespace volta::cli
