#include "train/run_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "formats/model_config.h"
#include "text/tokenizer.h"
#include "train/settings.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxCount = std::int64_t{1} << 40;
constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();

Result<DType> parse_compute_dtype(const JsonRef& ref, std::string_view key) {
  VOLTA_TRY(const std::string name, ref.get_string(key));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: {} is '{}'; it must be f32 or bf16", ref.path(), key, name));
}

Result<float> get_float32(const JsonRef& ref, std::string_view key) {
  VOLTA_TRY(const double value, ref.get_float(key, std::numeric_limits<float>::lowest(),
                                              std::numeric_limits<float>::max()));
  return static_cast<float>(value);
}

Result<OptimizerConfig> parse_optimizer(const JsonRef& ref) {
  OptimizerConfig optimizer;
  VOLTA_TRY(const std::string kind, ref.get_string("optimizer"));
  if (kind != "adamw" && kind != "sgd") {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: optimizer is '{}'; it must be adamw or sgd", ref.path(), kind));
  }
  optimizer.kind = kind == "sgd" ? OptimizerConfig::Kind::kSgd : OptimizerConfig::Kind::kAdamW;
  VOLTA_TRY(optimizer.beta1, get_float32(ref, "beta1"));
  VOLTA_TRY(optimizer.beta2, get_float32(ref, "beta2"));
  VOLTA_TRY(optimizer.eps, get_float32(ref, "eps"));
  VOLTA_TRY(optimizer.weight_decay, get_float32(ref, "weight_decay"));
  VOLTA_TRY(optimizer.momentum, get_float32(ref, "momentum"));
  VOLTA_TRY(optimizer.clip, get_float32(ref, "clip"));
  return optimizer;
}

Result<ScheduleConfig> parse_schedule_config(const JsonRef& ref) {
  ScheduleConfig schedule;
  VOLTA_TRY(const std::string kind, ref.get_string("schedule"));
  const auto parsed = parse_schedule(kind);
  if (!parsed) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: {}", ref.path(), parsed.error().message()));
  }
  schedule.kind = *parsed;
  VOLTA_TRY(schedule.lr, ref.get_float("lr"));
  VOLTA_TRY(schedule.min_lr, ref.get_float("min_lr"));
  VOLTA_TRY(schedule.warmup, ref.get_int("warmup", 0, kMaxCount));
  VOLTA_TRY(schedule.steps, ref.get_int("steps", 1, kMaxCount));
  return schedule;
}

Result<TrainerOptions> parse_training(const JsonRef& ref) {
  TrainerOptions options;
  VOLTA_TRY(options.batch, ref.get_int("batch", 1, kMaxCount));
  VOLTA_TRY(options.time, ref.get_int("time", 0, kMaxCount));
  VOLTA_TRY(options.accumulate, ref.get_int("accumulate", 1, kMaxCount));
  VOLTA_TRY(options.dropout, get_float32(ref, "dropout"));
  VOLTA_TRY(options.compute_dtype, parse_compute_dtype(ref, "compute_dtype"));
  VOLTA_TRY(options.optimizer, parse_optimizer(ref));
  VOLTA_TRY(options.schedule, parse_schedule_config(ref));
  return options;
}

Result<LoraConfig> parse_lora(const JsonRef& ref) {
  LoraConfig lora;
  VOLTA_TRY(lora.rank, ref.get_int("rank", 1, kMaxCount));
  VOLTA_TRY(lora.alpha, ref.get_float("alpha"));
  VOLTA_TRY(lora.dropout, get_float32(ref, "dropout"));
  VOLTA_TRY(lora.rank_stabilized, ref.get_bool("rank_stabilized"));
  VOLTA_TRY(const std::string targets, ref.get_string("targets"));
  lora.targets = split_targets(targets);
  return lora;
}

Status check_watching(const RunOptions& o) {
  const auto bad = [](std::string_view what, auto value, std::string_view range) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("run: {} is {}; it must be {}", what, value, range));
  };
  if (!(o.val_fraction >= 0.0 && o.val_fraction <= 0.9)) {
    return bad("val_fraction", o.val_fraction, "between 0 (no validation) and 0.9");
  }
  if (o.eval_every < 0 || o.eval_every > kMaxCount) {
    return bad("eval_every", o.eval_every, "0 (at the end only) or a number of steps");
  }
  if (o.eval_batches < 1 || o.eval_batches > kMaxCount) {
    return bad("eval_batches", o.eval_batches, "at least 1");
  }
  if (o.patience < 0 || o.patience > kMaxCount) {
    return bad("patience", o.patience, "0 (off) or a number of evaluations");
  }
  if (o.patience > 0 && (o.eval_every == 0 || o.val_fraction == 0.0)) {
    return fail(ErrorCode::kInvalidArgument,
                "run: patience needs evaluations; set eval_every and val_fraction above 0, or "
                "patience to 0");
  }
  if (o.save_every < 0 || o.save_every > kMaxCount) {
    return bad("save_every", o.save_every, "0 (at the end only) or a number of steps");
  }
  if (o.keep < 0 || o.keep > kMaxCount) {
    return bad("keep", o.keep, "0 (all checkpoints) or a number of checkpoints");
  }
  return {};
}

}  // namespace

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
  if (model.ffn == 0 && model.dim <= kMaxCount) model.ffn = 4 * model.dim;
  return model;
}

Status validate(const RunOptions& options) {
  if (options.data.empty()) {
    return fail(ErrorCode::kInvalidArgument, "run: no data; name a text file with --data");
  }
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
  VOLTA_TRY(check_watching(options));
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

void write_training_fields(JsonWriter& json, const TrainerOptions& o) {
  const bool sgd = o.optimizer.kind == OptimizerConfig::Kind::kSgd;
  json.begin_object().field("batch", o.batch).field("time", o.time);
  json.field("accumulate", o.accumulate).field("dropout", o.dropout);
  json.field("optimizer", sgd ? "sgd" : "adamw");
  json.field("beta1", o.optimizer.beta1).field("beta2", o.optimizer.beta2);
  json.field("eps", o.optimizer.eps).field("weight_decay", o.optimizer.weight_decay);
  json.field("momentum", o.optimizer.momentum).field("clip", o.optimizer.clip);
  json.field("schedule", schedule_name(o.schedule.kind)).field("lr", o.schedule.lr);
  json.field("min_lr", o.schedule.min_lr).field("warmup", o.schedule.warmup);
  json.field("steps", o.schedule.steps);
  json.field("compute_dtype", dtype_name(o.compute_dtype)).end_object();
}

void write_lora_fields(JsonWriter& json, const LoraConfig& o) {
  json.begin_object().field("rank", o.rank).field("alpha", o.alpha).field("dropout", o.dropout);
  json.field("rank_stabilized", o.rank_stabilized);
  json.field("targets", fmt::format("{}", fmt::join(o.targets, ","))).end_object();
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
  json.field("data", o.data).field("init", o.init);
  json.field("tokenizer", o.tokenizer).field("seed", o.seed);
  write_config_fields(json.key("model"), o.model);
  write_training_fields(json.key("training"), o.trainer);
  if (o.lora.active()) write_lora_fields(json.key("lora"), o.lora);
  json.field("val_fraction", o.val_fraction).field("eval_every", o.eval_every);
  json.field("eval_batches", o.eval_batches).field("patience", o.patience);
  json.field("save_every", o.save_every).field("keep", o.keep).field("keep_best", o.keep_best);
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
  VOLTA_TRY(o.data, root.get_string("data"));
  VOLTA_TRY(o.init, root.get_string("init"));
  VOLTA_TRY(o.tokenizer, root.get_string("tokenizer"));
  VOLTA_TRY(const std::int64_t seed, root.get_int("seed", 0, kMaxSeed));
  o.seed = static_cast<std::uint64_t>(seed);
  VOLTA_TRY(const JsonRef model, root.member("model"));
  VOLTA_TRY(o.model, parse_config_fields(model));
  VOLTA_TRY(const JsonRef training, root.member("training"));
  VOLTA_TRY(o.trainer, parse_training(training));
  VOLTA_TRY(const auto lora, root.optional_member("lora"));
  if (lora) {
    VOLTA_TRY(o.lora, parse_lora(*lora));
  }
  VOLTA_TRY(o.val_fraction, root.get_float("val_fraction", 0.0, 1.0));
  VOLTA_TRY(o.eval_every, root.get_int("eval_every", 0, kMaxCount));
  VOLTA_TRY(o.eval_batches, root.get_int("eval_batches", 1, kMaxCount));
  VOLTA_TRY(o.patience, root.get_int("patience", 0, kMaxCount));
  VOLTA_TRY(o.save_every, root.get_int("save_every", 0, kMaxCount));
  VOLTA_TRY(o.keep, root.get_int("keep", 0, kMaxCount));
  VOLTA_TRY(o.keep_best, root.get_bool_or("keep_best", true));
  return o;
}

namespace {

Result<RunOptions> read_run_options(const std::string& path) {
  VOLTA_TRY(const std::string text, read_text_file(path, std::int64_t{1} << 20));
  return parse_run_options(text, path);
}

}  // namespace

Result<RunOptions> load_run_options(const std::string& run_directory) {
  const std::string path = join_path(run_directory, kRunFile);
  auto loaded = read_run_options(path);
  if (!loaded && loaded.error().code() == ErrorCode::kInvalidFile) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}; to go on with the run, move that file away and give --data and "
                            "all other options again that the run was started with",
                            loaded.error().message()));
  }
  VOLTA_TRY(RunOptions options, std::move(loaded));
  options.out = run_directory;
  options.recorded_paths = {"data"};
  if (!options.init.empty()) options.recorded_paths.insert("init");
  const bool file = options.tokenizer != "byte" && options.tokenizer != "char";
  if (file && options.init.empty()) options.recorded_paths.insert("tokenizer");
  return options;
}

}  // namespace volta
