// volta train: trains a model on a text file.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "formats/hub_cache.h"
#include "train/dataset.h"
#include "train/presets.h"
#include "train/run.h"
#include "training_progress.h"

namespace volta::cli {
namespace {

constexpr std::string_view kDefaultPreset = "tiny";

// The options on the command line. All others come from the preset, or from the resumed run.
struct Flags {
  std::optional<std::string> preset, data, out, init, tokenizer, schedule, optimizer, position,
      norm, ffn_kind, activation, lora_targets;
  std::optional<std::int64_t> vocab, layers, heads, kv_heads, dim, ffn, context, batch, steps,
      warmup, accumulate, eval_every, eval_batches, save_every, keep, patience, lora_rank;
  std::optional<double> lr, min_lr, beta1, beta2, weight_decay, momentum, clip, dropout,
      val_fraction, lora_alpha, lora_dropout;
  std::optional<bool> keep_best;
  bool lora_rslora = false;
  bool resume = false;
  bool untied = false;
  bool bias = false;
};

template <typename From, typename To>
void set(const std::optional<From>& flag, To& field) {
  if (flag) field = static_cast<To>(*flag);
}

// Sets `field` to the value of the word that `flag` names.
template <typename T>
Status choose(const std::optional<std::string>& flag, std::string_view name,
              std::initializer_list<std::pair<std::string_view, T>> words, T& field) {
  if (!flag) return {};
  std::string known;
  for (const auto& [word, value] : words) {
    if (*flag == word) {
      field = value;
      return {};
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", word);
  }
  return fail(ErrorCode::kInvalidArgument, fmt::format("--{} {}: use {}", name, *flag, known));
}

Status apply_model(const Flags& flags, TransformerConfig& model) {
  set(flags.vocab, model.vocab_size);
  set(flags.layers, model.layers);
  set(flags.context, model.context);
  set(flags.heads, model.heads);
  set(flags.dim, model.dim);
  // Sizes that depend on others are computed again when those change.
  if (flags.heads) model.kv_heads = 0;
  if (flags.heads || flags.dim) model.head_dim = 0;
  if (flags.dim) model.ffn = 0;
  set(flags.kv_heads, model.kv_heads);
  set(flags.ffn, model.ffn);
  VOLTA_TRY(choose<PositionKind>(
      flags.position, "position",
      {{"learned", PositionKind::kLearned}, {"rotary", PositionKind::kRotary}}, model.position));
  if (flags.position) {
    model.naming =
        model.position == PositionKind::kLearned ? WeightNaming::kGpt2 : WeightNaming::kLlama;
  }
  VOLTA_TRY(choose<NormKind>(flags.norm, "norm",
                             {{"layer", NormKind::kLayer}, {"rms", NormKind::kRms}}, model.norm));
  VOLTA_TRY(choose<FfnKind>(flags.ffn_kind, "ffn-kind",
                            {{"mlp", FfnKind::kMlp}, {"gated", FfnKind::kGated}}, model.ffn_kind));
  VOLTA_TRY(choose<Activation>(flags.activation, "activation",
                               {{"gelu", Activation::kGelu},
                                {"gelu_tanh", Activation::kGeluTanh},
                                {"relu", Activation::kRelu},
                                {"silu", Activation::kSilu}},
                               model.activation));
  if (flags.untied) model.tied_output = false;
  if (flags.bias) {
    model.norm_bias = model.norm == NormKind::kLayer;
    model.attention_bias = model.attention_out_bias = model.ffn_bias = true;
  }
  return {};
}

// With --init the folder defines the model, and --context is the sequence length to train on.
Status apply_init(const Flags& flags, RunOptions& options) {
  const std::pair<const char*, bool> given[] = {{"--tokenizer", flags.tokenizer.has_value()},
                                                {"--vocab", flags.vocab.has_value()},
                                                {"--layers", flags.layers.has_value()},
                                                {"--heads", flags.heads.has_value()},
                                                {"--kv-heads", flags.kv_heads.has_value()},
                                                {"--dim", flags.dim.has_value()},
                                                {"--ffn", flags.ffn.has_value()},
                                                {"--position", flags.position.has_value()},
                                                {"--norm", flags.norm.has_value()},
                                                {"--ffn-kind", flags.ffn_kind.has_value()},
                                                {"--activation", flags.activation.has_value()},
                                                {"--untied", flags.untied},
                                                {"--bias", flags.bias}};
  for (const auto& [name, is_given] : given) {
    if (!is_given) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} does not go with --init: the folder says what the model is", name));
  }
  set(flags.context, options.trainer.time);
  return {};
}

Status apply_trainer(const Flags& flags, TrainerOptions& trainer) {
  set(flags.batch, trainer.batch);
  set(flags.accumulate, trainer.accumulate);
  set(flags.dropout, trainer.dropout);
  OptimizerConfig& optimizer = trainer.optimizer;
  VOLTA_TRY(choose<OptimizerConfig::Kind>(
      flags.optimizer, "optimizer",
      {{"adamw", OptimizerConfig::Kind::kAdamW}, {"sgd", OptimizerConfig::Kind::kSgd}},
      optimizer.kind));
  const bool adamw = optimizer.kind == OptimizerConfig::Kind::kAdamW;
  const std::pair<const char*, bool> others[] = {{"--beta1", flags.beta1 && !adamw},
                                                 {"--beta2", flags.beta2 && !adamw},
                                                 {"--momentum", flags.momentum && adamw}};
  for (const auto& [name, is_given] : others) {
    if (!is_given) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} goes with --optimizer {}", name, adamw ? "sgd" : "adamw"));
  }
  set(flags.beta1, optimizer.beta1);
  set(flags.beta2, optimizer.beta2);
  set(flags.weight_decay, optimizer.weight_decay);
  set(flags.momentum, optimizer.momentum);
  set(flags.clip, optimizer.clip);
  ScheduleConfig& schedule = trainer.schedule;
  if (flags.schedule) {
    VOLTA_TRY(schedule.kind, parse_schedule(*flags.schedule));
  }
  set(flags.lr, schedule.lr);
  if (flags.min_lr && schedule.kind == ScheduleKind::kConstant) {
    return fail(ErrorCode::kInvalidArgument, "--min-lr goes with --schedule cosine or linear");
  }
  set(flags.min_lr, schedule.min_lr);
  // A new peak also lowers the preset's floor, to at most a tenth of it.
  if (flags.lr && !flags.min_lr) schedule.min_lr = std::min(schedule.min_lr, schedule.lr / 10.0);
  set(flags.warmup, schedule.warmup);
  set(flags.steps, schedule.steps);
  return {};
}

Status apply_lora(const Flags& flags, LoraConfig& lora) {
  set(flags.lora_rank, lora.rank);
  const std::pair<const char*, bool> given[] = {{"--lora-alpha", flags.lora_alpha.has_value()},
                                                {"--lora-dropout", flags.lora_dropout.has_value()},
                                                {"--lora-targets", flags.lora_targets.has_value()},
                                                {"--lora-rslora", flags.lora_rslora}};
  for (const auto& [name, is_given] : given) {
    if (!is_given || lora.active()) continue;
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} goes with --lora-rank", name));
  }
  if (flags.lora_rank && *flags.lora_rank < 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--lora-rank {}: it must be at least 1", *flags.lora_rank));
  }
  if (flags.lora_alpha && !(*flags.lora_alpha > 0.0)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--lora-alpha {}: it must be positive", *flags.lora_alpha));
  }
  set(flags.lora_alpha, lora.alpha);
  set(flags.lora_dropout, lora.dropout);
  if (flags.lora_targets) lora.targets = split_targets(*flags.lora_targets);
  if (flags.lora_rslora) lora.rank_stabilized = true;
  return {};
}

// --out must be the folder of the run, also to resume from one of its checkpoints.
Status check_out(const Flags& flags) {
  if (!flags.out) return fail(ErrorCode::kInvalidArgument, "--out is required: the run's folder");
  const std::string folder = whole_path(*flags.out);
  const std::string run = parent_path(folder);
  if (!flags.resume || path_exists(join_path(folder, kRunFile)) ||
      !path_exists(join_path(folder, "manifest.json")) || !path_exists(join_path(run, kRunFile))) {
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is a checkpoint; its run goes on from the newest one by `volta train "
                          "--out {} --resume`",
                          *flags.out, shell_quoted(run)));
}

Result<RunOptions> make_options(const Flags& flags, const Globals& globals) {
  RunOptions options;
  VOLTA_TRY(check_out(flags));
  if (flags.resume && globals.force) {
    return fail(ErrorCode::kInvalidArgument,
                "--force replaces a run, --resume goes on with it: leave one of them out");
  }
  const bool known_run = flags.resume && path_exists(join_path(*flags.out, kRunFile));
  if (known_run) {
    VOLTA_TRY(options, load_run_options(*flags.out));
  } else {
    VOLTA_TRY(options, preset(kDefaultPreset));
  }
  if (flags.preset) {
    VOLTA_TRY(options, known_run ? preset(*flags.preset, options) : preset(*flags.preset));
  }
  options.out = *flags.out;
  options.resume = flags.resume;
  options.force = globals.force;
  // Stored as an absolute path, so that the run can be resumed from any directory.
  if (flags.data) options.data = whole_path(*flags.data);
  if (flags.data) options.recorded_paths.erase("data");
  if (flags.init) options.recorded_paths.erase("init");
  if (flags.tokenizer) options.recorded_paths.erase("tokenizer");
  if (flags.init) VOLTA_TRY(refuse_gguf(*flags.init));
  if (flags.init) {
    VOLTA_TRY(const std::string place, find_model_path(*flags.init));
    options.init = whole_path(place);
  }
  set(flags.tokenizer, options.tokenizer);
  set(flags.val_fraction, options.val_fraction);
  set(flags.eval_every, options.eval_every);
  set(flags.eval_batches, options.eval_batches);
  set(flags.save_every, options.save_every);
  set(flags.keep, options.keep);
  set(flags.keep_best, options.keep_best);
  set(flags.patience, options.patience);
  VOLTA_TRY(flags.init ? apply_init(flags, options) : apply_model(flags, options.model));
  VOLTA_TRY(apply_trainer(flags, options.trainer));
  VOLTA_TRY(apply_lora(flags, options.lora));
  if (options.data.empty() && flags.resume) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--out {}: there is no {}, which names what a run reads; name the "
                            "folder of a run, or give --data and its other options again",
                            *flags.out, kRunFile));
  }
  if (options.data.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "--data is required: a text file, or a .safetensors "
                "file of token ids");
  }
  if (!is_example_file(options.data) && flags.vocab) {
    return fail(ErrorCode::kInvalidArgument,
                "--vocab is for ready-made token ids; a text's vocabulary is its tokenizer's");
  }
  if (is_example_file(options.data) && (flags.tokenizer || flags.val_fraction)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} holds token ids: --tokenizer and --val-fraction are for text",
                            options.data));
  }
  if (globals.has("--seed") || !known_run) options.seed = globals.seed;
  if (globals.has("--dtype") || !known_run) {
    VOLTA_TRY(options.trainer.compute_dtype, compute_dtype(globals));
  }
  return options;
}

std::string result_json(const RunResult& result) {
  JsonWriter json;
  json.begin_object().field("steps", result.steps).field("new_steps", result.new_steps);
  if (result.loss) json.field("loss", *result.loss);
  if (result.val_loss) json.field("val_loss", *result.val_loss);
  if (result.best) {
    json.key("best").begin_object().field("step", result.best->step);
    json.field("val_loss", result.best->val_loss).end_object();
  }
  json.field("early_stop", result.end == RunEnd::kEarlyStop);
  json.field("seconds", result.seconds).field("tokens", result.tokens);
  json.field("checkpoint", result.checkpoint).end_object();
  return std::move(json).take() + "\n";
}

std::string result_text(const RunResult& result) {
  std::string text =
      fmt::format("{} steps in {}", result.new_steps, format_duration(result.seconds));
  if (result.new_steps < result.steps) text += fmt::format(" ({} in all)", result.steps);
  if (result.loss) text += fmt::format(", loss {:.4f}", *result.loss);
  if (result.val_loss) text += fmt::format(", val_loss {:.4f}", *result.val_loss);
  if (result.end == RunEnd::kEarlyStop) text += " (stopped early)";
  if (result.best && result.best->step != result.steps) {
    text += fmt::format("\nbest: val_loss {:.4f} after step {}", result.best->val_loss,
                        result.best->step);
  }
  return text + fmt::format("\nmodel: {}\n", result.checkpoint);
}

Status run_training(const Globals& globals, const Flags& flags) {
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  if (globals.weights != "stored") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--weights {}: training keeps its weights as f32; `volta quantize` "
                            "narrows those of a trained model",
                            globals.weights));
  }
  VOLTA_TRY(const RunOptions options, make_options(flags, globals));
  VOLTA_TRY(const Session session, Session::create(globals));
  auto trained = train_with_progress(options, session.device());
  VOLTA_TRY(session.finish(trained ? trained->checkpoint : ""));  // Also after an error.
  VOLTA_TRY(const RunResult result, std::move(trained));
  return print(output == Output::kJson ? result_json(result) : result_text(result));
}

void add_model_flags(Command& command, Flags& flags) {
  const char* group = "Model";
  command.add_option("--tokenizer", flags.tokenizer, "byte, char or a tokenizer.json")
      ->group(group);
  command.add_option("--vocab", flags.vocab, "of ready-made token ids (default 256)")->group(group);
  command.add_option("--layers", flags.layers)->group(group);
  command.add_option("--heads", flags.heads)->group(group);
  command.add_option("--kv-heads", flags.kv_heads, "key/value heads; default: heads")->group(group);
  command.add_option("--dim", flags.dim, "width")->group(group);
  command.add_option("--ffn", flags.ffn, "width of the feed-forward block; default: 4 dim")
      ->group(group);
  command
      .add_option("--context", flags.context,
                  "longest sequence in tokens; with --init, to train on")
      ->group(group);
  command.add_option("--position", flags.position, "learned or rotary")->group(group);
  command.add_option("--norm", flags.norm, "layer or rms")->group(group);
  command.add_option("--ffn-kind", flags.ffn_kind, "mlp or gated")->group(group);
  command.add_option("--activation", flags.activation, "gelu, gelu_tanh, relu or silu")
      ->group(group);
  command.add_flag("--untied", flags.untied, "an output projection of its own")->group(group);
  command.add_flag("--bias", flags.bias, "biases everywhere")->group(group);
  command.add_option("--init", flags.init, "start from this model folder")->group(group);
}

void add_training_flags(Command& command, Flags& flags) {
  const char* group = "Training";
  command.add_option("--batch", flags.batch, "sequences a micro-batch")->group(group);
  command.add_option("--steps", flags.steps, "updates")->group(group);
  command.add_option("--accumulate", flags.accumulate, "micro-batches an update")->group(group);
  command.add_option("--dropout", flags.dropout)->group(group);
  command.add_option("--optimizer", flags.optimizer, "adamw or sgd")->group(group);
  command.add_option("--lr", flags.lr, "peak learning rate")->group(group);
  command.add_option("--min-lr", flags.min_lr, "learning rate of the last step")->group(group);
  command.add_option("--warmup", flags.warmup, "steps of linear warm-up")->group(group);
  command.add_option("--schedule", flags.schedule, "cosine, linear or constant")->group(group);
  command.add_option("--beta1", flags.beta1)->group(group);
  command.add_option("--beta2", flags.beta2)->group(group);
  command.add_option("--momentum", flags.momentum, "of SGD")->group(group);
  command.add_option("--weight-decay", flags.weight_decay, "on matrices")->group(group);
  command.add_option("--clip", flags.clip, "largest gradient norm; 0: any")->group(group);
}

void add_lora_flags(Command& command, Flags& flags) {
  const char* group = "LoRA (an adapter for --init's model is trained, not its weights)";
  command.add_option("--lora-rank", flags.lora_rank, "rank of the adapter")->group(group);
  command.add_option("--lora-alpha", flags.lora_alpha, "scale times rank (default: 2 rank)")
      ->group(group);
  command.add_option("--lora-dropout", flags.lora_dropout, "on the adapter's input (default 0)")
      ->group(group);
  command
      .add_option("--lora-targets", flags.lora_targets,
                  "projections, e.g. q_proj,v_proj (the default; c_attn for GPT-2) or all-linear")
      ->group(group);
  command.add_flag("--lora-rslora", flags.lora_rslora, "scale by alpha / sqrt(rank)")->group(group);
}

void add_run_flags(Command& command, Flags& flags, Globals& globals) {
  const char* group = "Run";
  command.add_option("--data", flags.data, "text file, or X.safetensors with input_ids")
      ->group(group);
  command.add_option("--out", flags.out, "folder of the run")->check(refuse_empty)->group(group);
  command.add_flag("--resume", flags.resume, "go on from the newest valid checkpoint")
      ->group(group);
  command.add_option("--preset", flags.preset, "a named set of options; flags change it")
      ->group(group);
  command.add_option("--val-fraction", flags.val_fraction, "last part of the text, for validation")
      ->group(group);
  command.add_option("--eval-every", flags.eval_every, "steps between evaluations; 0: none")
      ->group(group);
  command.add_option("--eval-batches", flags.eval_batches, "random batches an evaluation")
      ->group(group);
  command.add_option("--patience", flags.patience, "evaluations without gain before an early stop")
      ->group(group);
  command.add_option("--save-every", flags.save_every, "steps between checkpoints; 0: at the end")
      ->group(group);
  command.add_option("--keep", flags.keep, "newest checkpoints that stay; 0: all")->group(group);
  command
      .add_flag("--keep-best,!--no-keep-best", flags.keep_best,
                "save each new minimum of the validation loss, and keep the lowest (default: yes)")
      ->group(group);
  command
      .add_flag("--force", globals.force,
                "rename a model or run that is in --out to OUT.old, and start a new run")
      ->group(group);
}

}  // namespace

Result<RunResult> train_with_progress(const RunOptions& options, std::shared_ptr<Device> device) {
  TrainingProgress progress;
  RunCallbacks callbacks;
  callbacks.on_start = [&](std::int64_t done, std::int64_t steps) { progress.start(done, steps); };
  callbacks.on_step = [&](const StepEvent& event) { progress.step(event); };
  callbacks.on_message = [&](LogLevel level, std::string_view text) {
    progress.message(level, text);
  };
  callbacks.should_stop = [] { return interrupted(); };
  auto result = train(options, std::move(device), callbacks);
  progress.finish();
  return result;
}

void add_train(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand("train", "train a model");
  auto flags = std::make_shared<Flags>();
  add_run_flags(*command, *flags, globals);
  add_model_flags(*command, *flags);
  add_training_flags(*command, *flags);
  add_lora_flags(*command, *flags);
  std::string names;
  for (const PresetInfo& info : presets()) {
    names += fmt::format("\n  {:<22} {}", info.name, info.summary);
  }
  command->footer(
      fmt::format("Presets, which say what is not given (default: {}):{}", kDefaultPreset, names));
  command->callback([&globals, &action, flags] {
    action = [&globals, flags] { return run_training(globals, *flags); };
  });
}

}  // namespace volta::cli
