#include "train/run_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "base/temporary.h"
#include "base/text.h"
#include "io/adapter.h"
#include "io/carried_files.h"
#include "io/model_folder.h"
#include "io/non_finite.h"
#include "train/checkpoint.h"
#include "train/run_folder.h"

namespace volta {
namespace {

Result<bool> holds_run(const std::string& directory) {
  VOLTA_TRY(const auto checkpoints, list_checkpoints(directory));
  return !checkpoints.empty() || path_exists(join_path(directory, kRunFile)) ||
         path_exists(join_path(directory, "metrics.jsonl"));
}

bool holds_model(const std::string& directory) {
  for (const std::string_view name :
       {std::string_view("config.json"), std::string_view("model.safetensors"),
        std::string_view("model.safetensors.index.json"), kAdapterConfigFile}) {
    if (path_exists(join_path(directory, name))) return true;
  }
  return false;
}

// What is in the way of a new run; empty when nothing is. A model's files beside checkpoints would
// leave it open which of the two the folder stands for.
Result<std::string> obstacle(const std::string& out) {
  VOLTA_TRY(const bool run, holds_run(out));
  if (run) {
    return fmt::format(
        "{} holds a run already; go on with it (--resume), choose another folder "
        "(--out), or have it renamed to {}.old (--force)",
        out, out);
  }
  if (!holds_model(out)) return "";
  return fmt::format(
      "{} holds a model; choose another folder (--out), or have it renamed to "
      "{}.old (--force)",
      out, out);
}

// What a new run reads must not be what it replaces.
Status check_sources(const RunOptions& options) {
  if (options.resume) return {};
  const bool same = is_same_place(options.init, options.out);
  const bool replaced = options.force && (is_inside(options.data, options.out) ||
                                          is_inside(options.init, options.out));
  if (!same && !replaced) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is the run's folder, and holds what the run reads: choose another "
                          "folder (--out)",
                          options.out));
}

// Makes the run's folder this process's own, and tidies up after a killed one.
Status lock_folder(RunSetup& setup) {
  const std::string& out = setup.options.out;
  VOLTA_TRY(create_directories(out));
  VOLTA_TRY(setup.lock, DirectoryLock::acquire(out));
  if (!setup.options.resume && !setup.options.force) {
    VOLTA_TRY(std::string reason, obstacle(out));
    if (!reason.empty()) return fail(ErrorCode::kInvalidArgument, std::move(reason));
  }
  VOLTA_TRY(const bool used, holds_run(out));
  if (used) remove_abandoned_temporaries(out);  // Elsewhere, nothing is a run's.
  return {};
}

// A checkpoint holds the checksums of what the run read: of other files nothing more is learnt than
// that they differ. Without one, whoever wrote run.json would choose the files of this machine that
// a model is made of.
Status check_recorded_paths(const RunOptions& options,
                            const std::optional<Checkpoint>& checkpoint) {
  if (checkpoint || options.recorded_paths.empty()) return {};
  const std::string& option = *options.recorded_paths.begin();
  const std::string& path = option == "data"   ? options.data
                            : option == "init" ? options.init
                                               : options.tokenizer;
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{} names '{}', and {} holds no valid checkpoint that says what was in it; "
                  "if that is what the run is to read, give it again: --{} {}",
                  join_path(options.out, kRunFile), path, options.out, option, shell_quoted(path)));
}

// Gives the new run an empty folder in the place of the one that holds something else, whose lock
// this process has.
Status replace_folder(RunSetup& setup, const Say& say) {
  // Without slashes at the end.
  const std::string out = join_path(parent_path(setup.options.out), file_name(setup.options.out));
  VOLTA_TRY(const std::string aside, set_aside(out, ".old"));
  say(LogLevel::kWarning, fmt::format("{} is kept as {}", out, aside));
  setup.lock.reset();
  return lock_folder(setup);
}

// Finds the checkpoint to go on from. A folder that no run has used yet is locked, and made, only
// when everything else is known to work: a start that fails leaves nothing behind.
Result<std::optional<Checkpoint>> open_folder(RunSetup& setup, const Interruption& interrupted,
                                              const Say& say) {
  const std::string& out = setup.options.out;
  if (path_exists(out)) {
    VOLTA_TRY(create_directories(out));  // Refuses what is no folder.
  }
  VOLTA_TRY(const bool used, holds_run(out));
  const bool model = holds_model(out);
  if (setup.options.resume && model && !used) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} holds a model and no run: there is nothing to resume. To train "
                            "the model further: --init {} --out NEW",
                            out, shell_quoted(out)));
  }
  if (used || model || path_exists(join_path(out, ".lock"))) {
    VOLTA_TRY(lock_folder(setup));
  }
  if (!setup.options.resume) return std::nullopt;
  VOLTA_TRY(auto checkpoint, newest_valid_checkpoint(out, interrupted));
  say(LogLevel::kInfo, checkpoint
                           ? fmt::format("resuming from {}", checkpoint->path)
                           : fmt::format("{} has no valid checkpoint: starting at step 0", out));
  return checkpoint;
}

// What the run would overwrite and could not be resumed from goes to other names: checkpoints that
// do not verify, and the metrics of a run that starts again.
Status keep_unusable(const RunSetup& setup, std::int64_t first_step, const Say& say) {
  const std::string& out = setup.options.out;
  VOLTA_TRY(const auto places, list_checkpoints(out));
  std::vector<std::pair<std::string, std::string_view>> unusable;
  for (const CheckpointPlace& place : places) {
    if (place.step > first_step) unusable.emplace_back(place.path, ".invalid");
  }
  const std::string metrics = join_path(out, "metrics.jsonl");
  if (setup.checkpoint.empty() && path_exists(metrics)) unusable.emplace_back(metrics, ".old");
  for (const auto& [path, suffix] : unusable) {
    VOLTA_TRY(const std::string aside, set_aside(path, suffix));
    say(LogLevel::kWarning, fmt::format("{} is kept as {}", path, aside));
  }
  return {};
}

// The tokenizer of a model folder; null when it has none, or (with ready-made examples, which need
// none) one that Volta does not read.
Result<std::shared_ptr<const Tokenizer>> folder_tokenizer(const std::string& folder, bool optional,
                                                          const Interruption& interrupted,
                                                          const Say& say) {
  if (folder.empty()) return nullptr;
  auto tokenizer = load_tokenizer(folder, interrupted);
  if (tokenizer) return tokenizer;
  if (tokenizer.error().code() == ErrorCode::kNotFound) return nullptr;
  if (!optional || tokenizer.error().code() == ErrorCode::kInterrupted) return tokenizer;
  say(LogLevel::kWarning,
      fmt::format("{}; checkpoints will be without a tokenizer", tokenizer.error().message()));
  return nullptr;
}

// A fresh model has a row for every id up to the largest one, and trains it. Tokenizers in use
// leave out a few ids at most; a damaged one may have a token of id 1,000,000 beside three others,
// which would take gigabytes.
Status check_gaps(const Tokenizer& tokenizer, const std::string& path) {
  constexpr std::int64_t kMostGaps = 4096;
  const std::int64_t ids = tokenizer.vocab_size();
  std::int64_t tokens = 0;
  for (std::int64_t id = 0; id < ids; ++id) {
    if (!tokenizer.token_bytes(static_cast<std::int32_t>(id)).empty()) ++tokens;
  }
  if (ids - tokens <= tokens + kMostGaps) return {};
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: {} tokens have ids up to {}, and a model would have a row for every "
                          "id; number the tokens without such gaps",
                          path, tokens, ids - 1));
}

// Reads the data and completes the options with what follows from it and from the model folder (of
// the checkpoint, or the one to start from; empty for fresh weights).
Status open_data(RunSetup& setup, const std::string& folder, const Interruption& interrupted,
                 const Say& say) {
  RunOptions& options = setup.options;
  const bool ready_made = is_example_file(options.data);
  VOLTA_TRY(auto tokenizer, folder_tokenizer(folder, ready_made, interrupted, say));
  if (folder.empty()) {
    VOLTA_TRY(options.model, complete_sizes(options.model));
  } else {
    VOLTA_TRY(options.model, load_model_config(folder));
  }
  if (ready_made) {
    if (tokenizer == nullptr && folder.empty() && options.model.vocab_size == 256) {
      tokenizer = make_byte_tokenizer();
    }
    VOLTA_TRY(setup.data, load_examples(options.data, options.model.vocab_size));
    setup.data.tokenizer = std::move(tokenizer);
    return {};
  }
  VOLTA_TRY(setup.data, load_text(options.data, options.tokenizer, std::move(tokenizer),
                                  options.val_fraction, interrupted));
  const std::int64_t vocab = setup.data.tokenizer->vocab_size();
  if (folder.empty()) {
    VOLTA_TRY(check_gaps(*setup.data.tokenizer, options.tokenizer));
    options.model.vocab_size = vocab;
  } else if (vocab > options.model.vocab_size) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: a vocabulary of {} {}s does not fit the model's {} tokens; use "
                    "another tokenizer or another model",
                    options.data, vocab, setup.data.tokenizer->kind(), options.model.vocab_size));
  }
  return {};
}

// A tokenizer.json of others comes with what its tokenizer_config.json says: end token, template.
// `folder` is the checkpoint's; empty for fresh weights.
Status carry_tokenizer_config(RunSetup& setup, const std::string& folder) {
  constexpr std::string_view kName = "tokenizer_config.json";
  const std::string& tokenizer = setup.options.tokenizer;
  if (!tokenizer.ends_with(".json")) return {};
  VOLTA_TRY(auto text, read_carried_file(folder.empty() ? parent_path(tokenizer) : folder, kName));
  if (text) setup.carried.emplace(kName, *std::move(text));
  return {};
}

// The length of a sequence, and the batches.
Status open_batches(RunSetup& setup) {
  RunOptions& options = setup.options;
  const Dataset& data = setup.data;
  std::int64_t& time = options.trainer.time;
  const std::int64_t natural = data.has_examples() ? data.example_length : options.model.context;
  if (time == 0) time = natural;
  if (data.has_examples() && time != natural) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: its examples are {} tokens long, the run asks for {}", data.path,
                            natural, time));
  }
  if (time > options.model.context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("training: sequences of {} tokens are longer than the model's context "
                            "of {}",
                            time, options.model.context));
  }
  if (options.patience > 0 && data.has_examples()) {
    return fail(ErrorCode::kInvalidArgument,
                "run: patience needs validation text, which ready-made examples lack");
  }
  if (data.has_examples()) {
    VOLTA_TRY(ExampleRows rows, ExampleRows::create(std::move(setup.data.rows), data.examples, time,
                                                    options.trainer.accumulate));
    setup.batches = std::make_unique<ExampleRows>(std::move(rows));
    return {};
  }
  VOLTA_TRY(check_lengths(data, time));
  VOLTA_TRY(RandomWindows windows, RandomWindows::create(data.train, time, options.seed));
  setup.batches = std::make_unique<RandomWindows>(std::move(windows));
  return {};
}

// The model to begin with, whose weights are all numbers: the first step would only say that its
// loss is none.
Result<Transformer> load_init_model(const std::string& path,
                                    const std::shared_ptr<Device>& device) {
  VOLTA_TRY(Transformer model, load_model(path, device));
  if (auto finite = check_finite(model); !finite) {
    return std::unexpected(std::move(finite).error().with_context(path));
  }
  return model;
}

Result<Transformer> make_model(const RunOptions& options,
                               const std::optional<Checkpoint>& checkpoint,
                               const std::shared_ptr<Device>& device) {
  if (checkpoint) return load_checkpoint_model(*checkpoint, options.model, device);
  if (!options.init.empty()) return load_init_model(options.init, device);
  return Transformer::random(options.model, options.seed, device);
}

// The base model of a LoRA run, with a fresh adapter or the checkpoint's. Another base than the
// adapter was begun on would make other numbers of it.
Result<Transformer> make_adapted_model(RunSetup& setup, const std::optional<Checkpoint>& checkpoint,
                                       const std::shared_ptr<Device>& device) {
  const RunOptions& options = setup.options;
  VOLTA_TRY(Transformer model, load_init_model(options.init, device));
  VOLTA_TRY(std::string hash, weights_hash(model));
  if (checkpoint && checkpoint->manifest.base->xxh3 != hash) {
    return fail(ErrorCode::kMismatch,
                fmt::format("{}: the weights of {} (XXH3 {}) are not those that the adapter was "
                            "begun on ({}, XXH3 {}); resume with that model as --init",
                            checkpoint->path, options.init, hash, checkpoint->manifest.base->path,
                            checkpoint->manifest.base->xxh3));
  }
  setup.base = BaseModel{.path = options.init, .xxh3 = std::move(hash)};
  VOLTA_TRY(Adapter adapter,
            checkpoint ? load_adapter(checkpoint->path, model.config())
                       : Adapter::random(model.config(), options.lora, options.seed, *device));
  VOLTA_TRY(model.attach(std::move(adapter)));
  return model;
}

// A run of the one kind cannot go on from a checkpoint of the other.
Status check_kind(const RunOptions& options, const std::optional<Checkpoint>& checkpoint) {
  const bool lora = options.lora.active();
  if (!checkpoint || checkpoint->manifest.base.has_value() == lora) return {};
  return fail(ErrorCode::kMismatch,
              fmt::format("{} holds {}, but the run is to train {}; resume with its own settings, "
                          "or start anew in another folder",
                          checkpoint->path, lora ? "a whole model" : "a LoRA adapter",
                          lora ? "a LoRA adapter" : "a whole model"));
}

Status open_evaluator(RunSetup& setup, const Transformer& model) {
  if (setup.data.validation == nullptr || setup.data.validation->empty()) return {};
  const TrainerOptions& options = setup.options.trainer;
  VOLTA_TRY(setup.evaluator,
            Evaluator::create(model, options.batch, options.time, options.compute_dtype));
  VOLTA_TRY(setup.validation, RandomWindows::create(setup.data.validation, options.time,
                                                    setup.options.seed, kEvaluationStream));
  return {};
}

// Says so when the resumed run cannot go on bit for bit.
void compare_machines(const CheckpointManifest& manifest, const Trainer& trainer, const Say& say) {
  const Device& device = *trainer.model().device();
  const DeviceInfo here = device.info();
  if (manifest.isa != here.isa) {
    say(LogLevel::kWarning,
        fmt::format("the checkpoint was written on {} ({}), this is {} ({}): the run goes on, but "
                    "its bits will differ from an unbroken run's",
                    manifest.device, manifest.isa, here.id, here.isa));
  } else if (manifest.kernels != kernel_parameters(trainer.graph(), device)) {
    say(LogLevel::kWarning,
        fmt::format("the checkpoint was written by Volta {} with other kernel parameters: the run "
                    "goes on, but its bits will differ from an unbroken run's",
                    manifest.volta));
  }
}

void describe(const RunSetup& setup, const Say& say) {
  const Dataset& data = setup.data;
  say(LogLevel::kInfo,
      data.has_examples()
          ? fmt::format("data: {}, {} examples of {} tokens", data.path, data.examples,
                        data.example_length)
          : fmt::format("data: {}, {} tokens of {} kinds ({}); {} to train on, {} to validate with",
                        data.path, data.tokens, data.tokenizer->vocab_size(),
                        data.tokenizer->kind(), data.train->size(), data.validation->size()));
  const TransformerConfig& model = setup.options.model;
  say(LogLevel::kInfo, fmt::format("model: {} parameters, {} layers, {} heads, {} wide, context {}",
                                   format_count(parameter_count(model)), model.layers, model.heads,
                                   model.dim, model.context));
  const LoraConfig& lora = setup.options.lora;
  if (lora.active()) {
    std::int64_t count = 0;
    for (const ParameterInfo& info : lora_parameters(model, lora)) count += info.shape.elements();
    say(LogLevel::kInfo,
        fmt::format("LoRA: rank {}, alpha {}, dropout {}, on {}: {} parameters are trained, the "
                    "model's own stay as they are",
                    lora.rank, lora.alpha, lora.dropout, fmt::join(lora.targets, ", "),
                    format_count(count)));
  }
  const ScheduleConfig& schedule = setup.options.trainer.schedule;
  if (schedule.warmup >= schedule.steps) {
    say(LogLevel::kWarning,
        fmt::format("the warm-up of {} steps is as long as the run of {} or longer: the learning "
                    "rate never reaches {}; see --warmup",
                    schedule.warmup, schedule.steps, schedule.lr));
  }
  const TrainerMemory memory = setup.trainer->memory();
  const std::int64_t evaluation = setup.evaluator ? setup.evaluator->activation_bytes() : 0;
  say(LogLevel::kInfo,
      fmt::format("memory: weights {}, optimiser {}, activations {}, evaluation {}",
                  format_bytes(memory.weights), format_bytes(memory.optimizer),
                  format_bytes(memory.activations), format_bytes(evaluation)));
}

// Says before the first step, where a week of work may follow, that its result may not fit.
void warn_of_little_space(const RunSetup& setup, const Say& say) {
  const auto free = free_bytes(setup.options.out);
  const auto there = list_checkpoints(setup.options.out);
  if (!free || !there) return;  // Nothing is known; the checkpoints' own errors will tell.
  const std::string warning =
      space_warning(setup.options, checkpoint_bytes(*setup.trainer), std::ssize(*there), *free);
  if (!warning.empty()) say(LogLevel::kWarning, warning);
}

}  // namespace

std::string space_warning(const RunOptions& options, std::int64_t bytes, std::int64_t there,
                          std::int64_t free) {
  const std::int64_t steps = options.trainer.schedule.steps;
  const std::int64_t every = options.save_every > 0 ? options.save_every : steps;
  const std::int64_t written = ceil_div(steps, every);
  // The one that is being written is there beside those that stay, and so may the best one be.
  const std::int64_t most = options.keep == 0
                                ? written
                                : std::min(written, options.keep + 1) + (options.keep_best ? 1 : 0);
  const std::int64_t count = std::max<std::int64_t>(most - there, 1);
  if (bytes <= 0 || count <= free / bytes) return "";
  return fmt::format(
      "a checkpoint takes {}, and up to {} more are kept at a time, but the file "
      "system of {} has {} free: free some space, choose another folder (--out), or "
      "keep fewer (--keep, --no-keep-best)",
      format_bytes(bytes), count, options.out, format_bytes(free));
}

Result<RunSetup> set_up_run(const RunOptions& options, const std::shared_ptr<Device>& device,
                            const Interruption& interrupted, const Say& say) {
  VOLTA_TRY(validate(options));
  VOLTA_TRY(check_sources(options));
  RunSetup setup;
  setup.options = options;
  setup.options.trainer.seed = options.seed;
  VOLTA_TRY(const auto checkpoint, open_folder(setup, interrupted, say));
  VOLTA_TRY(check_recorded_paths(options, checkpoint));
  // A checkpoint is a model folder. What the options say of a fresh model must agree with it.
  VOLTA_TRY(check_kind(options, checkpoint));
  const bool lora = options.lora.active();
  if ((!checkpoint || lora) && !options.init.empty()) {
    VOLTA_TRY(setup.options.init, find_model_folder(options.init, interrupted));
  }
  // An adapter's checkpoint is none: what it belongs to says what the model is.
  const std::string folder = checkpoint && !lora ? checkpoint->path : setup.options.init;
  VOLTA_TRY(open_data(setup, folder, interrupted, say));
  if (checkpoint && options.init.empty()) {
    VOLTA_TRY(TransformerConfig wanted, complete_sizes(options.model));
    wanted.vocab_size = setup.options.model.vocab_size;
    setup.options.model = wanted;
  }
  VOLTA_TRY(open_batches(setup));
  const OptimizerConfig& optimizer = setup.options.trainer.optimizer;
  const bool adam = optimizer.kind == OptimizerConfig::Kind::kAdamW;
  const int moments = adam ? 2 : optimizer.momentum != 0.0f ? 1 : 0;
  // Weights alone, or with gradients and moments.
  VOLTA_TRY(check_memory(setup.options.model, lora ? 1 : 2 + moments, *device));
  if (lora) {
    VOLTA_TRY(setup.options.lora, complete_lora(setup.options.lora, setup.options.model));
  } else if (!options.init.empty()) {
    VOLTA_TRY(setup.carried, read_carried_files(folder));
  } else {
    VOLTA_TRY(carry_tokenizer_config(setup, folder));
  }
  setup.state.settings = settings_json(setup.options, setup.data);
  std::optional<TrainerState> saved;
  if (checkpoint) {
    setup.checkpoint = checkpoint->path;
    VOLTA_TRY(saved, load_trainer_state(*checkpoint, interrupted));
    VOLTA_TRY(setup.state,
              parse_run_state(saved->run_state, checkpoint->path, setup.state.settings));
  }
  VOLTA_TRY(const Transformer model, lora ? make_adapted_model(setup, checkpoint, device)
                                          : make_model(setup.options, checkpoint, device));
  VOLTA_TRY(setup.trainer, Trainer::create(model, setup.options.trainer));
  if (saved) {
    VOLTA_TRY(setup.trainer->restore(saved->step, saved->optimizer));
    compare_machines(checkpoint->manifest, *setup.trainer, say);
  }
  VOLTA_TRY(open_evaluator(setup, model));
  describe(setup, say);
  if (!setup.lock) {
    VOLTA_TRY(lock_folder(setup));
  }
  if (options.force) {
    VOLTA_TRY(const std::string reason, obstacle(options.out));
    if (!reason.empty()) VOLTA_TRY(replace_folder(setup, say));
  }
  VOLTA_TRY(keep_unusable(setup, setup.trainer->steps_done(), say));
  warn_of_little_space(setup, say);
  VOLTA_TRY(write_run_file(setup.options, {.best = setup.state.best}));
  return setup;
}

}  // namespace volta
