#include "train/run_options.h"

#include <fmt/format.h>

#include <utility>

#include "base/arithmetic.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/model_config.h"
#include "text/tokenizer.h"
#include "train/dataset.h"
#include "train/flag_values.h"
#include "train/training_flags.h"

namespace volta {

Result<TransformerConfig> complete_sizes(TransformerConfig model) {
  if (model.heads < 1 || model.dim < 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("model: dim is {}, heads is {}; both must be at least 1", model.dim,
                            model.heads));
  }
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.head_dim == 0) {
    if (model.dim % model.heads != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("model: {} heads do not divide the width of {}; use a dim that is a "
                              "multiple of heads",
                              model.heads, model.dim));
    }
    model.head_dim = model.dim / model.heads;
  }
  if (model.ffn == 0 && model.dim <= kMaxPlausibleCount) model.ffn = 4 * model.dim;
  return model;
}

namespace {

// All files must be of one kind, and conversations need a model that can read them.
Status check_data(const RunOptions& options) {
  const std::string& first = options.data.front();
  std::vector<std::string> others = options.data;
  if (!options.val_data.empty()) others.push_back(options.val_data);
  for (const std::string& path : others) {
    if (path.empty()) {
      return fail(ErrorCode::kInvalidArgument, "run: no data; name a text file with --data");
    }
    if (data_kind(path) == data_kind(first)) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("run: {} and {} are data of different kinds; a run takes texts, "
                            "conversations (.jsonl) or token ids (.safetensors)",
                            first, path));
  }
  if (data_kind(first) == DataKind::kChats && options.init.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("run: {} holds conversations, which need a model with a chat template "
                            "to start from; name its folder with --init",
                            first));
  }
  return {};
}

}  // namespace

Status validate(const RunOptions& options) {
  if (options.data.empty()) {
    return fail(ErrorCode::kInvalidArgument, "run: no data; name a text file with --data");
  }
  VOLTA_TRY(check_data(options));
  if (options.out.empty()) {
    return fail(ErrorCode::kInvalidArgument, "run: no output folder; name one with --out");
  }
  if (!is_tokenizer_kind(options.tokenizer)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("unknown tokenizer '{}'; use byte or char, or name a tokenizer.json",
                            options.tokenizer));
  }
  if (options.force && options.resume) {
    return fail(ErrorCode::kInvalidArgument,
                "run: to resume a run and to replace it exclude each other; leave one out");
  }
  if (options.seed > static_cast<std::uint64_t>(kMaxSeed)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("run: seed is {}; it must be at most {}", options.seed, kMaxSeed));
  }
  if (options.lora.active() && options.init.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "run: LoRA adapts a model that exists; name its folder with --init");
  }
  if (options.lora.rank < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("run: the rank of LoRA is {}; it must be at least 1, or 0 for none",
                            options.lora.rank));
  }
  VOLTA_TRY(check_ranges(options));
  if (options.patience > 0 &&
      (options.eval_every == 0 || (options.val_fraction == 0.0 && options.val_data.empty()))) {
    return fail(ErrorCode::kInvalidArgument,
                "--patience needs evaluations: give --eval-every a number of steps above 0, and "
                "data to validate with (--val-fraction or --val-data)");
  }
  TrainerOptions trainer = options.trainer;
  if (options.init.empty()) {
    VOLTA_TRY(const TransformerConfig model, complete_sizes(options.model));
    VOLTA_TRY(validate(model));
    if (trainer.time == 0) trainer.time = model.context;
    if (trainer.time > model.context) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("training: sequences of {} tokens are longer than the model's "
                              "context of {}",
                              trainer.time, model.context));
    }
  }
  if (trainer.time == 0) trainer.time = 1;
  return validate(trainer);
}

std::set<std::string, std::less<>> split_targets(std::string_view text) {
  std::set<std::string, std::less<>> targets;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    targets.emplace(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return targets;
}

void write_option_fields(JsonWriter& json, const RunOptions& o) {
  write_flags(json, "", o);
  write_config_fields(json.key("model"), o.model);
  write_training_objects(json, o);
}

std::string to_json(const RunOptions& options) {
  JsonWriter json(2);
  json.begin_object();
  write_option_fields(json, options);
  json.end_object();
  return std::move(json).take() + "\n";
}

Result<RunOptions> parse_run_options(std::string_view text, std::string_view name) {
  VOLTA_TRY(const JsonValue json, parse_json(text, name, {.max_bytes = std::int64_t{1} << 20}));
  const JsonRef root(json, name);
  RunOptions o;
  VOLTA_TRY(read_flags(root, "", o));
  VOLTA_TRY(const JsonRef model, root.member("model"));
  VOLTA_TRY(o.model, parse_config_fields(model));
  VOLTA_TRY(const JsonRef training, root.member("training"));
  VOLTA_TRY(read_flags(training, "training", o));
  VOLTA_TRY(const auto lora, root.optional_member("lora"));
  if (lora) {
    VOLTA_TRY(read_flags(*lora, "lora", o));
  }
  return o;
}

namespace {

// The options in RUN_DIR/run.json, checked. The file is to blame for a value out of range.
Result<RunOptions> read_run_options(const std::string& run_directory) {
  const std::string path = join_path(run_directory, kRunFile);
  VOLTA_TRY(const std::string text, read_text_file(path, std::int64_t{1} << 20));
  VOLTA_TRY(RunOptions options, parse_run_options(text, path));
  options.out = run_directory;
  if (const Status valid = validate(options); !valid) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", path, valid.error().message()));
  }
  return options;
}

}  // namespace

Result<RunOptions> load_run_options(const std::string& run_directory) {
  auto loaded = read_run_options(run_directory);
  if (!loaded && loaded.error().code() == ErrorCode::kInvalidFile) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}; to go on with the run, move that file away and give --data and "
                            "all other options again that the run was started with",
                            loaded.error().message()));
  }
  VOLTA_TRY(RunOptions options, std::move(loaded));
  options.recorded_paths = {"data"};
  if (!options.val_data.empty()) options.recorded_paths.insert("val-data");
  if (!options.init.empty()) options.recorded_paths.insert("init");
  const bool file = options.tokenizer != "byte" && options.tokenizer != "char";
  if (file && options.init.empty()) options.recorded_paths.insert("tokenizer");
  return options;
}

}  // namespace volta
