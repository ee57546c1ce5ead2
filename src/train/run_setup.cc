#include "train/run_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/arithmetic.h"
#include "base/text.h"
#include "formats/adapter.h"
#include "formats/carried_files.h"
#include "formats/hub_cache.h"
#include "formats/model_source.h"
#include "formats/non_finite.h"
#include "train/adapter_base.h"
#include "train/checkpoint.h"
#include "train/checkpoint_writer.h"
#include "train/run_folder.h"
#include "train/run_setup_data.h"
#include "train/run_setup_folder.h"

namespace volta {
namespace {

// Loads the model to start from and checks that its weights are finite. Otherwise the first step
// would only report that its loss is not finite.
Result<Transformer> load_init_model(const ModelSource& source,
                                    const std::shared_ptr<Device>& device) {
  VOLTA_TRY(Transformer model, source.load(device));
  if (auto finite = check_finite(model); !finite) {
    return std::unexpected(std::move(finite).error().with_context(source.path()));
  }
  return model;
}

Result<Transformer> make_model(const RunOptions& options,
                               const std::optional<Checkpoint>& checkpoint,
                               const std::optional<ModelSource>& source,
                               const std::shared_ptr<Device>& device) {
  if (checkpoint) return load_checkpoint_model(*checkpoint, options.model, device);
  if (source) return load_init_model(*source, device);
  return Transformer::random(options.model, options.seed, device);
}

// Tells the user when weights of --init are stored as integers: they are trained as f32.
Status tell_of_integers(const ModelSource& source, const Say& say) {
  VOLTA_TRY(const TransformerConfig config, source.config());
  VOLTA_TRY(const auto weights, source.weights(config));
  std::int64_t count = 0;
  for (const ParameterInfo& parameter : parameters(config)) {
    VOLTA_TRY(const TensorSpec spec, weights->spec(parameter));
    count += spec.encoding.quantized() ? 1 : 0;
  }
  if (count == 0) return {};
  say(LogLevel::kInfo,
      fmt::format("weights: {} of {} {} stored as integers, and widened to f32 for training",
                  counted(count, "tensor"), source.path(), count == 1 ? "is" : "are"));
  return {};
}

// The base model of a LoRA run, with a fresh adapter or that of the checkpoint. It must be the
// model that the adapter was begun on, because another one would give different results.
Result<Transformer> make_adapted_model(RunSetup& setup, const std::optional<Checkpoint>& checkpoint,
                                       const ModelSource& source,
                                       const std::shared_ptr<Device>& device) {
  const RunOptions& options = setup.options;
  VOLTA_TRY(Transformer model, load_init_model(source, device));
  VOLTA_TRY(std::string hash, weights_hash(model));
  if (checkpoint && checkpoint->manifest.base->xxh3 != hash) {
    return fail(ErrorCode::kMismatch,
                fmt::format("{}: the weights of {} (XXH3 {}) are not those that the adapter was "
                            "begun on ({}, XXH3 {}); resume with that model as --init",
                            checkpoint->path, options.init, hash, checkpoint->manifest.base->path,
                            checkpoint->manifest.base->xxh3));
  }
  setup.base = BaseModel{.path = name_or_folder(options.init), .xxh3 = std::move(hash)};
  VOLTA_TRY(Adapter adapter,
            checkpoint ? load_adapter(checkpoint->path, model.config())
                       : Adapter::random(model.config(), options.lora, options.seed, *device));
  VOLTA_TRY(model.attach(std::move(adapter)));
  return model;
}

// A LoRA run cannot resume from a checkpoint of a whole model, nor the other way round.
Status check_kind(const RunOptions& options, const std::optional<Checkpoint>& checkpoint) {
  const bool lora = options.lora.active();
  if (!checkpoint || checkpoint->manifest.base.has_value() == lora) return {};
  return fail(ErrorCode::kMismatch,
              fmt::format("{} holds {}, but the run is to train {}; resume with its own settings, "
                          "or start a new run in another folder",
                          checkpoint->path, lora ? "a whole model" : "a LoRA adapter",
                          lora ? "a LoRA adapter" : "a whole model"));
}

Status open_evaluator(RunSetup& setup, const Transformer& model) {
  const Dataset& data = setup.data;
  const bool text = data.validation != nullptr && !data.validation->empty();
  if (!text && data.validation_rows == nullptr) return {};
  const TrainerOptions& options = setup.options.trainer;
  VOLTA_TRY(setup.evaluator,
            Evaluator::create(model, options.batch, setup.row_tokens, options.compute_dtype));
  if (!text) return {};
  VOLTA_TRY(setup.validation, RandomWindows::create(setup.data.validation, options.time,
                                                    setup.options.seed, kEvaluationStream));
  return {};
}

Status restore(Trainer& trainer, const Checkpoint& checkpoint, const TrainerState& saved) {
  Status restored = trainer.restore(saved.step, saved.optimizer);
  if (restored || restored.error().code() != ErrorCode::kInvalidFile) return restored;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: {}. Move {} to another place to go on from an older checkpoint, or "
                          "start a new run (--out NEW, without --resume)",
                          join_path(checkpoint.path, kTrainerFile), restored.error().message(),
                          checkpoint.path));
}

// Warns when a resumed run will not be bit-identical to an unbroken one.
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

// Refuses another learning rate for a run without further steps, where it would change nothing.
Status check_steps_follow(const RunSetup& setup, std::int64_t done) {
  const auto& changed = setup.state.adjustments;
  const std::int64_t steps = setup.options.trainer.schedule.steps;
  if (changed.empty() || done < steps) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the run has done its {}, so that {} would change nothing: give it "
                          "more with --steps",
                          counted(steps, "step"), fmt::join(changed, ", ")));
}

// Reports that a resumed run has another learning rate or another number of steps.
void report_changes(const RunSetup& setup, const Say& say) {
  if (const auto& changed = setup.state.adjustments; !changed.empty()) {
    say(LogLevel::kWarning, fmt::format("from here on the run has {}; the optimiser's moments stay",
                                        fmt::join(changed, ", ")));
  }
  if (!setup.state.other_steps) return;
  const ScheduleConfig& schedule = setup.options.trainer.schedule;
  const bool constant = schedule.kind == ScheduleKind::kConstant;
  say(constant ? LogLevel::kInfo : LogLevel::kWarning,
      fmt::format("the run has {} instead of {}{}", counted(schedule.steps, "step"),
                  *setup.state.other_steps,
                  constant ? "" : ": the learning rate now follows the longer schedule"));
}

std::string description(const Dataset& data) {
  if (data.has_examples()) {
    const std::int64_t validation = data.validation_rows ? data.validation_rows->count : 0;
    return fmt::format("data: {}, {} of {}; {} to validate with", data.path,
                       counted(data.examples, "example"), counted(data.example_length, "token"),
                       validation);
  }
  if (data.has_chats()) {
    return fmt::format("data: {}, {} tokens of conversations", data.path, data.tokens);
  }
  if (data.mapped) {
    return fmt::format("data: {}, {} tokens; {} to train on, {} to validate with", data.path,
                       data.tokens, data.mapped_train, data.validation->size());
  }
  return fmt::format("data: {}, {} tokens of {} kinds ({}); {} to train on, {} to validate with",
                     data.path, data.tokens, data.tokenizer->vocab_size(), data.tokenizer->kind(),
                     data.train->size(), data.validation->size());
}

void describe(const RunSetup& setup, const Say& say) {
  const Dataset& data = setup.data;
  say(LogLevel::kInfo, description(data));
  const TransformerConfig& model = setup.options.model;
  say(LogLevel::kInfo,
      fmt::format("model: {} parameters, {}, {}, {} wide, context {}",
                  format_count(parameter_count(model)), counted(model.layers, "layer"),
                  counted(model.heads, "head"), model.dim, model.context));
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
  const TrainerOptions& trainer = setup.options.trainer;
  const ScheduleConfig& schedule = trainer.schedule;
  say(LogLevel::kInfo,
      fmt::format("steps: {}, each of {}{} of {}", schedule.steps,
                  trainer.accumulate > 1 ? fmt::format("{} times ", trainer.accumulate) : "",
                  counted(trainer.batch, "row"), counted(setup.row_tokens, "token")));
  if (schedule.warmup >= schedule.steps) {
    say(LogLevel::kWarning,
        fmt::format("the warm-up of {} steps is as long as the run of {} or longer: the learning "
                    "rate never reaches {}; try --warmup {}",
                    schedule.warmup, schedule.steps, schedule.lr, schedule.steps / 10));
  }
  const DType compute = setup.options.trainer.compute_dtype;
  const std::string drawback =
      setup.trainer->model().device()->compute_drawback(compute, Rounding::kActivations, false);
  if (!drawback.empty()) {
    say(LogLevel::kWarning, fmt::format("training in {} can be slower than in f32 here: {}",
                                        dtype_name(compute), drawback));
  }
  const TrainerMemory memory = setup.trainer->memory();
  const std::int64_t evaluation = setup.evaluator ? setup.evaluator->activation_bytes() : 0;
  say(LogLevel::kInfo,
      fmt::format("memory: weights {}, optimiser {}, activations {}, evaluation {}",
                  format_bytes(memory.weights), format_bytes(memory.optimizer),
                  format_bytes(memory.activations), format_bytes(evaluation)));
}

// Warns before the first step when the result may not fit on the disk; a week of work may follow.
void warn_of_little_space(const RunSetup& setup, const Say& say) {
  const auto free = free_bytes(setup.options.out);
  const auto there = list_checkpoints(setup.options.out);
  if (!free || !there) return;  // Unknown; a failing checkpoint reports its own error.
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
  // The checkpoint that is being written exists beside those that are kept, and so may the best
  // one.
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
  VOLTA_TRY(run_setup::check_sources(options));
  RunSetup setup;
  setup.options = options;
  setup.options.trainer.seed = options.seed;
  VOLTA_TRY(const auto checkpoint, run_setup::open_folder(setup, interrupted, say));
  VOLTA_TRY(run_setup::check_recorded_paths(options, checkpoint));
  // A checkpoint is a model folder, and the options for a fresh model must agree with it.
  VOLTA_TRY(check_kind(options, checkpoint));
  const bool lora = options.lora.active();
  if ((!checkpoint || lora) && !options.init.empty()) {
    VOLTA_TRY(setup.options.init, find_model_folder(options.init, interrupted));
  }
  // A LoRA checkpoint is not a model folder. The folder of its base defines the model.
  const std::string folder = checkpoint && !lora ? checkpoint->path : setup.options.init;
  std::optional<ModelSource> source;  // Of fresh weights, there is none.
  if (!folder.empty()) {
    VOLTA_TRY(source, ModelSource::open(folder));
  }
  VOLTA_TRY(run_setup::open_data(setup, source ? &*source : nullptr, interrupted, say));
  if (checkpoint && options.init.empty()) {
    VOLTA_TRY(TransformerConfig wanted, complete_sizes(options.model));
    wanted.vocab_size = setup.options.model.vocab_size;
    setup.options.model = wanted;
  }
  VOLTA_TRY(run_setup::open_batches(setup, *device, say));
  if (setup.options.shorten_warmup) {  // The number of steps is now known.
    ScheduleConfig& schedule = setup.options.trainer.schedule;
    schedule.warmup = std::min(schedule.warmup, schedule.steps / 10);
  }
  const OptimizerConfig& optimizer = setup.options.trainer.optimizer;
  const bool adam = optimizer.kind == OptimizerConfig::Kind::kAdamW;
  const int moments = adam ? 2 : optimizer.momentum != 0.0f ? 1 : 0;
  // LoRA needs the weights; full training also needs gradients and moments of the same size.
  VOLTA_TRY(check_parameters_fit(setup.options.model, lora ? 1 : 2 + moments, *device));
  if (lora) {
    VOLTA_TRY(setup.options.lora, complete_lora(setup.options.lora, setup.options.model));
  } else if (!options.init.empty()) {
    VOLTA_TRY(setup.carried, read_carried_files(folder));
  } else {
    VOLTA_TRY(run_setup::carry_tokenizer_config(setup, folder));
  }
  setup.state.settings = settings_json(setup.options, setup.data);
  std::optional<TrainerState> saved;
  if (checkpoint) {
    setup.checkpoint = checkpoint->path;
    VOLTA_TRY(saved, load_trainer_state(*checkpoint, interrupted));
    const auto recorded = load_run_options(options.out);
    VOLTA_TRY(setup.state, parse_run_state(saved->run_state, checkpoint->path, saved->step,
                                           setup.state.settings, recorded ? &*recorded : nullptr));
    VOLTA_TRY(check_steps_follow(setup, saved->step));
    report_changes(setup, say);
  }
  VOLTA_TRY(const Transformer model, lora ? make_adapted_model(setup, checkpoint, *source, device)
                                          : make_model(setup.options, checkpoint, source, device));
  if (source && (!checkpoint || lora)) VOLTA_TRY(tell_of_integers(*source, say));
  TrainerOptions trainer = setup.options.trainer;
  trainer.time = setup.row_tokens;
  VOLTA_TRY(setup.trainer, Trainer::create(model, trainer));
  if (saved) {
    VOLTA_TRY(restore(*setup.trainer, *checkpoint, *saved));
    compare_machines(checkpoint->manifest, *setup.trainer, say);
  }
  VOLTA_TRY(open_evaluator(setup, model));
  describe(setup, say);
  if (!setup.lock) {
    VOLTA_TRY(run_setup::lock_folder(setup));
  }
  if (options.force) {
    VOLTA_TRY(const std::string reason, run_setup::obstacle(options.out));
    if (!reason.empty()) VOLTA_TRY(run_setup::replace_folder(setup, say));
  }
  VOLTA_TRY(run_setup::keep_unusable(setup, setup.trainer->steps_done(), say));
  warn_of_little_space(setup, say);
  VOLTA_TRY(write_run_file(setup.options, {.best = setup.state.best}));
  return setup;
}

}  // namespace volta
