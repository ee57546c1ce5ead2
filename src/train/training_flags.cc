#include "train/training_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

namespace volta {
namespace {

// The words for the values of an enum, on the command line and in run.json.
template <typename T>
struct Word {
  std::string_view name;
  T value;
};
template <typename T>
constexpr auto kWords = std::array<Word<T>, 0>{};
template <>
constexpr auto kWords<PositionKind> = std::to_array<Word<PositionKind>>(
    {{"learned", PositionKind::kLearned}, {"rotary", PositionKind::kRotary}});
template <>
constexpr auto kWords<NormKind> =
    std::to_array<Word<NormKind>>({{"layer", NormKind::kLayer}, {"rms", NormKind::kRms}});
template <>
constexpr auto kWords<FfnKind> =
    std::to_array<Word<FfnKind>>({{"mlp", FfnKind::kMlp}, {"gated", FfnKind::kGated}});
template <>
constexpr auto kWords<Activation> =
    std::to_array<Word<Activation>>({{"gelu", Activation::kGelu},
                                     {"gelu_tanh", Activation::kGeluTanh},
                                     {"relu", Activation::kRelu},
                                     {"silu", Activation::kSilu}});
template <>
constexpr auto kWords<OptimizerConfig::Kind> = std::to_array<Word<OptimizerConfig::Kind>>(
    {{"adamw", OptimizerConfig::Kind::kAdamW}, {"sgd", OptimizerConfig::Kind::kSgd}});
template <>
constexpr auto kWords<ScheduleKind> =
    std::to_array<Word<ScheduleKind>>({{"cosine", ScheduleKind::kCosine},
                                       {"linear", ScheduleKind::kLinear},
                                       {"constant", ScheduleKind::kConstant}});
template <>
constexpr auto kWords<DType> =
    std::to_array<Word<DType>>({{"f32", DType::kF32}, {"bf16", DType::kBF16}});

template <typename T>
constexpr auto kNames = [] {
  std::array<std::string_view, kWords<T>.size()> names;
  std::ranges::transform(kWords<T>, names.begin(), &Word<T>::name);
  return names;
}();

template <typename T>
constexpr FlagType type_of() {
  if constexpr (std::same_as<T, bool>) return FlagType::kSwitch;
  if constexpr (std::integral<T>) return FlagType::kWhole;
  if constexpr (std::same_as<T, double>) return FlagType::kReal;
  if constexpr (std::same_as<T, float>) return FlagType::kReal32;
  if constexpr (std::is_enum_v<T>) return FlagType::kWord;
  if constexpr (std::same_as<T, std::vector<std::string>>) return FlagType::kPaths;
  return FlagType::kText;
}

using Targets = std::set<std::string, std::less<>>;

template <typename T>
FlagValue to_value(const T& field) {
  if constexpr (std::is_enum_v<T>) {
    for (const auto& [word, value] : kWords<T>) {
      if (value == field) return std::string(word);
    }
    return std::string("?");
  } else if constexpr (std::same_as<T, Targets>) {
    return fmt::format("{}", fmt::join(field, ","));
  } else if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    return static_cast<std::int64_t>(field);
  } else if constexpr (std::floating_point<T>) {
    return static_cast<double>(field);
  } else {
    return field;
  }
}

// The type of the value and its word have been checked before.
template <typename T>
void from_value(const FlagValue& value, T& field) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    if constexpr (std::is_enum_v<T>) {
      for (const auto& [word, constant] : kWords<T>) {
        if (word == *text) field = constant;
      }
    } else if constexpr (std::same_as<T, Targets>) {
      field = split_targets(*text);
    } else if constexpr (std::same_as<T, std::string>) {
      field = *text;
    }
  }
  if constexpr (std::same_as<T, std::vector<std::string>>) {
    if (const auto* list = std::get_if<std::vector<std::string>>(&value)) field = *list;
  }
  if constexpr (std::same_as<T, bool>) {
    if (const bool* on = std::get_if<bool>(&value)) field = *on;
  } else if constexpr (std::is_arithmetic_v<T>) {
    if (const auto* whole = std::get_if<std::int64_t>(&value)) field = static_cast<T>(*whole);
    if (const auto* real = std::get_if<double>(&value)) field = static_cast<T>(*real);
  }
}

// The field that a path of members leads to: at<&RunOptions::lora, &LoraConfig::rank>() is
// options.lora.rank.
template <auto... Path>
constexpr FlagField at() {
  using Field = std::remove_cvref_t<decltype((std::declval<RunOptions&>().*....*Path))>;
  FlagField field{.type = type_of<Field>(),
                  .get = [](const RunOptions& options) { return to_value((options.*....*Path)); },
                  .set = [](RunOptions& options,
                            const FlagValue& value) { from_value(value, (options.*....*Path)); }};
  if constexpr (std::is_enum_v<Field>) field.words = kNames<Field>;
  return field;
}
template <auto Member>
constexpr FlagField model() {
  return at<&RunOptions::model, Member>();
}
template <auto Member>
constexpr FlagField trainer() {
  return at<&RunOptions::trainer, Member>();
}
template <auto Member>
constexpr FlagField optimizer() {
  return at<&RunOptions::trainer, &TrainerOptions::optimizer, Member>();
}
template <auto Member>
constexpr FlagField schedule() {
  return at<&RunOptions::trainer, &TrainerOptions::schedule, Member>();
}
template <auto Member>
constexpr FlagField lora() {
  return at<&RunOptions::lora, Member>();
}

// A path that the user gives no longer comes from run.json.
void data_is_given(RunOptions& o) { o.recorded_paths.erase("data"); }
void validation_is_given(RunOptions& o) { o.recorded_paths.erase("val-data"); }
void init_is_given(RunOptions& o) { o.recorded_paths.erase("init"); }
void tokenizer_is_given(RunOptions& o) { o.recorded_paths.erase("tokenizer"); }
// Sizes that depend on others are computed again when those change.
void heads_changed(RunOptions& o) { o.model.kv_heads = o.model.head_dim = 0; }
void dim_changed(RunOptions& o) { o.model.head_dim = o.model.ffn = 0; }
void position_changed(RunOptions& o) {
  o.model.naming =
      o.model.position == PositionKind::kLearned ? WeightNaming::kGpt2 : WeightNaming::kLlama;
}
void untie(RunOptions& o) { o.model.tied_output = false; }
void add_biases(RunOptions& o) {
  o.model.norm_bias = o.model.norm == NormKind::kLayer;
  o.model.attention_bias = o.model.attention_out_bias = o.model.ffn_bias = true;
}
void warmup_is_given(RunOptions& o) { o.shorten_warmup = false; }
// A new peak also lowers the floor, to at most a tenth of it.
void lr_changed(RunOptions& o) {
  ScheduleConfig& s = o.trainer.schedule;
  s.min_lr = std::min(s.min_lr, s.lr / 10.0);
}

constexpr FlagGroup kRun = FlagGroup::kRun;
constexpr FlagGroup kModel = FlagGroup::kModel;
constexpr FlagGroup kTraining = FlagGroup::kTraining;
constexpr FlagGroup kLora = FlagGroup::kLora;
constexpr OnResume kMayChange = OnResume::kMayChange;
constexpr OnResume kMayAdjust = OnResume::kMayAdjust;
constexpr FlagRange<std::int64_t> kFromOne{1, kMaxPlausibleCount};
constexpr double kLargest = std::numeric_limits<double>::max();
constexpr FlagRange<double> kPositive{std::numeric_limits<double>::denorm_min(), kLargest};
constexpr FlagRange<double> kFromZero{0.0, kLargest};
constexpr FlagRange<double> kBelowOne{0.0, 0x1.fffffep-1};  // The largest f32 below 1.
constexpr std::string_view kBelowOneText = "at least 0 and below 1 (0.9999999 at most)";

// clang-format off
constexpr auto kFlags = std::to_array<TrainingFlag>({
    // A resumed run compares what the file of --data holds, not its path.
    {.name = "data", .group = kRun,
     .help = "text file, X.jsonl of conversations, X.safetensors with input_ids, or X.bin of "
             "16-bit ids (required without --resume); repeat it for several",
     .field = at<&RunOptions::data>(), .key = "data", .resume = kMayChange, .then = data_is_given},
    {.name = "val-data", .group = kRun, .help = "a file of the same kind, to validate with",
     .field = at<&RunOptions::val_data>(), .key = "val_data", .resume = kMayChange,
     .then = validation_is_given, .added_later = true},
    {.name = "out", .group = kRun, .help = "folder of the run (required)", .field = at<&RunOptions::out>(),
     .resume = kMayChange},
    {.name = "resume", .group = kRun, .help = "go on from the newest valid checkpoint",
     .field = at<&RunOptions::resume>(), .resume = kMayChange},
    // The options that the other flags change. The caller reads them before it sets flags.
    {.name = "preset", .group = kRun, .help = "a named set of options; flags change it",
     .field = {.type = FlagType::kText}, .resume = kMayChange},
    {.name = "val-fraction", .group = kRun, .help = "part to validate with: the end of each text, or random conversations",
     .field = at<&RunOptions::val_fraction>(), .key = "val_fraction", .real = {0.0, 0.9},
     .range = "between 0 (no validation) and 0.9", .needs = kNeedsSplit},
    {.name = "eval-every", .group = kRun, .help = "steps between evaluations; 0: only at the end",
     .field = at<&RunOptions::eval_every>(), .key = "eval_every", .resume = kMayChange,
     .range = "0 (at the end only) or a number of steps"},
    {.name = "eval-batches", .group = kRun, .help = "random batches an evaluation",
     .field = at<&RunOptions::eval_batches>(), .key = "eval_batches", .resume = kMayChange,
     .whole = kFromOne, .range = "at least 1"},
    {.name = "patience", .group = kRun, .help = "evaluations without gain before an early stop; 0: off",
     .field = at<&RunOptions::patience>(), .key = "patience", .resume = kMayChange,
     .range = "0 (off) or a number of evaluations"},
    {.name = "save-every", .group = kRun, .help = "steps between checkpoints; 0: at the end",
     .field = at<&RunOptions::save_every>(), .key = "save_every", .resume = kMayChange,
     .range = "0 (at the end only) or a number of steps"},
    {.name = "keep", .group = kRun, .help = "newest checkpoints that stay; 0: all",
     .field = at<&RunOptions::keep>(), .key = "keep", .resume = kMayChange,
     .range = "0 (all checkpoints) or a number of checkpoints"},
    {.name = "keep-best", .group = kRun,
     .help = "save each new minimum of the validation loss, and keep the lowest (default: yes)",
     .field = at<&RunOptions::keep_best>(), .key = "keep_best", .resume = kMayChange,
     .added_later = true},
    {.name = "tensorboard", .group = kRun,
     .help = "also write event files of TensorBoard, into OUT/tensorboard",
     .field = at<&RunOptions::tensorboard>(), .key = "tensorboard", .resume = kMayChange,
     .added_later = true},
    {.name = "force", .group = kRun,
     .help = "rename a model or run that is in --out to OUT.old, and start a new run",
     .field = at<&RunOptions::force>(), .resume = kMayChange},
    {.field = at<&RunOptions::seed>(), .key = "seed", .whole = {0, kMaxSeed}},

    {.name = "tokenizer", .group = kModel, .help = "byte, char or a tokenizer.json",
     .field = at<&RunOptions::tokenizer>(), .key = "tokenizer",
     .needs = kNeedsFreshModel | kNeedsText, .then = tokenizer_is_given},
    {.name = "vocab", .group = kModel, .help = "of ready-made token ids (default 256)",
     .field = model<&TransformerConfig::vocab_size>(), .key = "model.vocab_size",
     .needs = kNeedsFreshModel | kNeedsTokenIds},
    {.name = "layers", .group = kModel, .help = "blocks of the transformer",
     .field = model<&TransformerConfig::layers>(),
     .key = "model.layers", .whole = kFromOne, .range = "at least 1", .needs = kNeedsFreshModel},
    {.name = "heads", .group = kModel, .help = "attention heads",
     .field = model<&TransformerConfig::heads>(),
     .key = "model.heads", .whole = kFromOne, .range = "at least 1", .needs = kNeedsFreshModel, .then = heads_changed},
    {.name = "kv-heads", .group = kModel, .help = "key/value heads; default: heads",
     .field = model<&TransformerConfig::kv_heads>(), .key = "model.kv_heads",
     .needs = kNeedsFreshModel},
    {.name = "dim", .group = kModel, .help = "width", .field = model<&TransformerConfig::dim>(),
     .key = "model.dim", .whole = kFromOne, .range = "at least 1", .needs = kNeedsFreshModel, .then = dim_changed},
    {.name = "ffn", .group = kModel, .help = "width of the feed-forward block; default: 4 dim",
     .field = model<&TransformerConfig::ffn>(), .key = "model.ffn", .needs = kNeedsFreshModel},
    {.name = "context", .group = kModel,
     .help = "longest sequence in tokens (default: 512); with --init, to train on (default: the "
             "model's, 1024 at most)",
     .field = model<&TransformerConfig::context>(), .key = "model.context"},
    {.name = "position", .group = kModel, .help = "learned or rotary",
     .field = model<&TransformerConfig::position>(), .key = "model.position",
     .needs = kNeedsFreshModel, .then = position_changed},
    {.name = "norm", .group = kModel, .help = "layer or rms",
     .field = model<&TransformerConfig::norm>(), .key = "model.norm", .needs = kNeedsFreshModel},
    {.name = "ffn-kind", .group = kModel, .help = "mlp or gated",
     .field = model<&TransformerConfig::ffn_kind>(), .key = "model.ffn_kind",
     .needs = kNeedsFreshModel},
    {.name = "activation", .group = kModel, .help = "gelu, gelu_tanh, relu or silu",
     .field = model<&TransformerConfig::activation>(), .key = "model.activation",
     .needs = kNeedsFreshModel},
    {.name = "untied", .group = kModel, .help = "an output projection of its own",
     .needs = kNeedsFreshModel, .then = untie},
    {.name = "bias", .group = kModel, .help = "biases everywhere", .needs = kNeedsFreshModel,
     .then = add_biases},
    {.name = "init", .group = kModel, .help = "start from this model folder, run or name in the Hugging Face cache",
     .field = at<&RunOptions::init>(), .key = "init", .resume = kMayChange, .then = init_is_given},

    {.name = "batch", .group = kTraining, .help = "sequences a micro-batch; with --init, fewer when memory is short",
     .field = trainer<&TrainerOptions::batch>(), .key = "training.batch", .whole = kFromOne, .range = "at least 1"},
    {.field = trainer<&TrainerOptions::time>(), .key = "training.time"},
    {.name = "steps", .group = kTraining, .help = "updates",
     .field = schedule<&ScheduleConfig::steps>(), .key = "training.steps",
     .resume = OnResume::kMayExtend, .whole = kFromOne, .range = "at least 1"},
    {.name = "epochs", .group = kTraining,
     .help = "passes over the rows of conversations or ids, instead of --steps; 0: --steps",
     .field = at<&RunOptions::epochs>(), .key = "epochs", .resume = kMayChange,
     .range = "0 (as many as --steps takes) or a number of passes", .needs = kNeedsRows,
     .added_later = true},
    {.name = "packing", .group = kTraining,
     .help = "put several conversations into a row (default: one)",
     .field = at<&RunOptions::packing>(), .key = "packing", .needs = kNeedsChats,
     .added_later = true},
    {.name = "shuffle", .group = kTraining, .help = "take rows of ids in another order every pass",
     .field = at<&RunOptions::shuffle>(), .key = "shuffle", .needs = kNeedsIdRows,
     .added_later = true},
    {.name = "accumulate", .group = kTraining, .help = "micro-batches an update",
     .field = trainer<&TrainerOptions::accumulate>(), .key = "training.accumulate",
     .whole = kFromOne, .range = "at least 1"},
    {.name = "dropout", .group = kTraining, .help = "share of activations that a step drops",
     .field = trainer<&TrainerOptions::dropout>(),
     .key = "training.dropout", .real = kBelowOne, .range = kBelowOneText},
    {.name = "optimizer", .group = kTraining, .help = "adamw or sgd",
     .field = optimizer<&OptimizerConfig::kind>(), .key = "training.optimizer"},
    {.name = "lr", .group = kTraining, .help = "peak learning rate",
     .field = schedule<&ScheduleConfig::lr>(), .key = "training.lr", .resume = kMayAdjust, .real = kPositive,
     .range = "positive", .then = lr_changed},
    {.name = "min-lr", .group = kTraining, .help = "learning rate of the last step",
     .field = schedule<&ScheduleConfig::min_lr>(), .key = "training.min_lr", .resume = kMayAdjust, .real = kFromZero,
     .range = "0 or positive", .needs = kNeedsDecay},
    {.name = "warmup", .group = kTraining, .help = "steps of linear warm-up; unless given, a tenth of the run at most",
     .field = schedule<&ScheduleConfig::warmup>(), .key = "training.warmup", .resume = kMayAdjust,
     .range = "0 or a number of steps", .then = warmup_is_given},
    {.name = "schedule", .group = kTraining, .help = "cosine, linear or constant",
     .field = schedule<&ScheduleConfig::kind>(), .key = "training.schedule", .resume = kMayAdjust},
    {.name = "beta1", .group = kTraining, .help = "AdamW: decay of the gradients' mean",
     .field = optimizer<&OptimizerConfig::beta1>(),
     .key = "training.beta1", .real = kBelowOne, .range = kBelowOneText, .needs = kNeedsAdamW},
    {.name = "beta2", .group = kTraining, .help = "AdamW: decay of their mean square",
     .field = optimizer<&OptimizerConfig::beta2>(),
     .key = "training.beta2", .real = kBelowOne, .range = kBelowOneText, .needs = kNeedsAdamW},
    {.field = optimizer<&OptimizerConfig::eps>(), .key = "training.eps"},
    {.name = "momentum", .group = kTraining, .help = "of SGD",
     .field = optimizer<&OptimizerConfig::momentum>(), .key = "training.momentum",
     .real = kBelowOne, .range = kBelowOneText, .needs = kNeedsSgd},
    {.name = "weight-decay", .group = kTraining, .help = "on matrices",
     .field = optimizer<&OptimizerConfig::weight_decay>(), .key = "training.weight_decay",
     .real = kFromZero, .range = "0 or positive"},
    {.name = "clip", .group = kTraining, .help = "largest gradient norm; 0: any",
     .field = optimizer<&OptimizerConfig::clip>(), .key = "training.clip", .real = kFromZero,
     .range = "0 (off) or positive"},
    {.field = trainer<&TrainerOptions::compute_dtype>(), .key = "training.compute_dtype"},

    {.name = "lora-rank", .group = kLora, .help = "rank of the adapter",
     .field = lora<&LoraConfig::rank>(), .key = "lora.rank", .whole = kFromOne,
     .range = "at least 1"},
    {.name = "lora-alpha", .group = kLora, .help = "scale times rank (default: 2 rank)",
     .field = lora<&LoraConfig::alpha>(), .key = "lora.alpha",
     .real = kPositive, .range = "positive", .needs = kNeedsLora},
    {.name = "lora-dropout", .group = kLora, .help = "on the adapter's input (default 0)",
     .field = lora<&LoraConfig::dropout>(), .key = "lora.dropout",
     .real = kBelowOne, .range = kBelowOneText, .needs = kNeedsLora},
    {.name = "lora-targets", .group = kLora,
     .help = "projections, e.g. q_proj,v_proj (the default; c_attn for GPT-2) or all-linear",
     .field = lora<&LoraConfig::targets>(), .key = "lora.targets", .needs = kNeedsLora},
    {.name = "lora-rslora", .group = kLora, .help = "scale by alpha / sqrt(rank)",
     .field = lora<&LoraConfig::rank_stabilized>(), .key = "lora.rank_stabilized",
     .needs = kNeedsLora},
});
// clang-format on

}  // namespace

std::span<const TrainingFlag> training_flags() { return kFlags; }

bool has_negative_form(const TrainingFlag& flag) {
  if (flag.field.get == nullptr) return false;
  const FlagValue value = flag.field.get(RunOptions());
  const bool* on = std::get_if<bool>(&value);
  return on != nullptr && *on;
}

}  // namespace volta
