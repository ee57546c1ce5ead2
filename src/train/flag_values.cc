#include "train/flag_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "train/dataset.h"
#include "train/training_flags.h"

namespace volta {
namespace {

DataKind kind_of(const RunOptions& o) {
  return o.data.empty() ? DataKind::kText : data_kind(o.data.front());
}

// One rule for each FlagNeed.
struct NeedRule {
  FlagNeed need;
  bool (*met)(const RunOptions&);
  std::string_view message;  ///< After the name of the flag.
};
constexpr std::array kNeedRules = {
    NeedRule{kNeedsFreshModel, [](const RunOptions& o) { return o.init.empty(); },
             "does not go with --init: the folder says what the model is"},
    NeedRule{kNeedsText, [](const RunOptions& o) { return kind_of(o) == DataKind::kText; },
             "is for text, but --data names a file of token ids or conversations"},
    NeedRule{
        kNeedsSplit,
        [](const RunOptions& o) { return kind_of(o) != DataKind::kTokenIds && o.val_data.empty(); },
        "is for data other than rows of token ids, and without --val-data"},
    NeedRule{kNeedsChats, [](const RunOptions& o) { return kind_of(o) == DataKind::kChats; },
             "is for conversations (--data X.jsonl)"},
    NeedRule{kNeedsRows,
             [](const RunOptions& o) {
               return kind_of(o) == DataKind::kTokenIds || kind_of(o) == DataKind::kChats;
             },
             "is for conversations and rows of token ids; a text has no rows: give --steps"},
    NeedRule{kNeedsTokenIds,
             [](const RunOptions& o) {
               return kind_of(o) == DataKind::kTokenIds || kind_of(o) == DataKind::kTokenStream;
             },
             "is for ready-made token ids (--data X.safetensors or X.bin)"},
    NeedRule{kNeedsIdRows, [](const RunOptions& o) { return kind_of(o) == DataKind::kTokenIds; },
             "is for rows of token ids (--data X.safetensors)"},
    NeedRule{kNeedsAdamW,
             [](const RunOptions& o) {
               return o.trainer.optimizer.kind == OptimizerConfig::Kind::kAdamW;
             },
             "goes with --optimizer adamw"},
    NeedRule{
        kNeedsSgd,
        [](const RunOptions& o) { return o.trainer.optimizer.kind == OptimizerConfig::Kind::kSgd; },
        "goes with --optimizer sgd"},
    NeedRule{kNeedsDecay,
             [](const RunOptions& o) { return o.trainer.schedule.kind != ScheduleKind::kConstant; },
             "goes with --schedule cosine or linear"},
    NeedRule{kNeedsLora, [](const RunOptions& o) { return o.lora.active(); },
             "goes with --lora-rank"},
};

bool is_real(FlagType type) { return type == FlagType::kReal || type == FlagType::kReal32; }

// Whether a value has the type of its flag.
bool fits(FlagType type, const FlagValue& value) {
  if (type == FlagType::kWhole) return std::holds_alternative<std::int64_t>(value);
  if (is_real(type)) return std::holds_alternative<double>(value);
  if (type == FlagType::kSwitch) return std::holds_alternative<bool>(value);
  if (type == FlagType::kPaths) return std::holds_alternative<std::vector<std::string>>(value);
  return std::holds_alternative<std::string>(value);
}

// Calls `use` with the value. std::visit would end the process for a variant without a value.
template <typename Use>
void with_value(const FlagValue& value, const Use& use) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) use(*whole);
  if (const auto* real = std::get_if<double>(&value)) use(*real);
  if (const auto* on = std::get_if<bool>(&value)) use(*on);
  if (const auto* text = std::get_if<std::string>(&value)) use(*text);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) use(*list);
}

std::string text_of(const FlagValue& value) {
  std::string text;
  with_value(value, [&](const auto& v) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(v)>, std::vector<std::string>>) {
      text = fmt::format("{}", fmt::join(v, ", "));
    } else {
      text = fmt::format("{}", v);
    }
  });
  return text;
}

// A switch that is given as off has no effect.
bool is_off(const FlagValue& value) {
  const bool* on = std::get_if<bool>(&value);
  return on != nullptr && !*on;
}

// Numbers that are not finite are out of every range.
bool in_range(const TrainingFlag& flag, const FlagValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    return *whole >= flag.whole.least && *whole <= flag.whole.most;
  }
  const auto* real = std::get_if<double>(&value);
  return real == nullptr || (*real >= flag.real.least && *real <= flag.real.most);
}

bool known_word(const TrainingFlag& flag, const FlagValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return flag.field.type != FlagType::kWord ||
         (text != nullptr && std::ranges::find(flag.field.words, *text) != flag.field.words.end());
}

// "cosine, linear or constant".
std::string list_of(std::span<const std::string_view> words) {
  std::string list;
  for (const std::string_view& word : words) {
    if (!list.empty()) list += &word == &words.back() ? " or " : ", ";
    list += word;
  }
  return list;
}

Status check_value(const TrainingFlag& flag, const FlagValue& value) {
  const auto bad = [&](const std::string& remedy) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--{} {}: {}", flag.name, text_of(value), remedy));
  };
  if (!fits(flag.field.type, value)) return bad("this flag takes another type of value");
  if (!known_word(flag, value)) {
    return bad(fmt::format("use {}", list_of(flag.field.words)));
  }
  if (!flag.range.empty() && !in_range(flag, value)) {
    return bad(fmt::format("it must be {}", flag.range));
  }
  return {};
}

void set(const TrainingFlag& flag, const FlagValue& value, RunOptions& options) {
  if (flag.field.set != nullptr) flag.field.set(options, value);
  if (flag.then != nullptr && !is_off(value)) flag.then(options);
}

// The part of a flag's key after `object`; empty for flags of other objects.
std::string_view key_in(const TrainingFlag& flag, std::string_view object) {
  const std::size_t dot = flag.key.find('.');
  const bool outside = dot == std::string_view::npos;
  if (object.empty()) return outside ? flag.key : "";
  return !outside && flag.key.substr(0, dot) == object ? flag.key.substr(dot + 1) : "";
}

void write_list(JsonWriter& json, std::string_view key, const std::vector<std::string>& list) {
  if (list.size() == 1) {
    json.field(key, list.front());
    return;
  }
  json.key(key).begin_array();
  for (const std::string& text : list) json.value(text);
  json.end_array();
}

void write_value(JsonWriter& json, std::string_view key, const TrainingFlag& flag,
                 const RunOptions& options) {
  const FlagValue value = flag.field.get(options);
  const auto* real = std::get_if<double>(&value);
  if (real != nullptr && flag.field.type == FlagType::kReal32) {
    json.field(key, static_cast<float>(*real));
    return;
  }
  with_value(value, [&](const auto& v) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(v)>, std::vector<std::string>>) {
      write_list(json, key, v);
    } else {
      json.field(key, v);
    }
  });
}

Result<FlagValue> read_list(const JsonRef& ref, std::string_view key) {
  VOLTA_TRY(const JsonRef member, ref.member(key));
  if (const std::string* one = member.node().if_string()) return std::vector{*one};
  VOLTA_TRY(const auto elements, member.elements());
  std::vector<std::string> list;
  for (const JsonRef& element : elements) {
    VOLTA_TRY(std::string text, element.as_string());
    list.push_back(std::move(text));
  }
  return list;
}

// A range with words for it is left to check_read_value().
Result<FlagValue> read_value(const JsonRef& ref, std::string_view key, const TrainingFlag& flag) {
  const bool described = !flag.range.empty();
  switch (flag.field.type) {
    case FlagType::kWhole:
      return described ? ref.get_int(key) : ref.get_int(key, flag.whole.least, flag.whole.most);
    case FlagType::kReal:
      return described ? ref.get_float(key) : ref.get_float(key, flag.real.least, flag.real.most);
    case FlagType::kReal32:
      return ref.get_float(key, std::numeric_limits<float>::lowest(),
                           std::numeric_limits<float>::max());
    case FlagType::kSwitch:
      return ref.get_bool(key);
    case FlagType::kText:
      return ref.get_string(key);
    case FlagType::kPaths:
      return read_list(ref, key);
    case FlagType::kWord:
      break;
  }
  VOLTA_TRY(std::string word, ref.get_string(key));
  if (known_word(flag, word)) return word;
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: {} is '{}'; it must be {}", ref.path(), key,
                                                   word, list_of(flag.field.words)));
}

Status check_read_value(const JsonRef& ref, std::string_view key, const TrainingFlag& flag,
                        const FlagValue& value) {
  if (flag.range.empty() || in_range(flag, value)) return {};
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: {} is {}; it must be {}", ref.path(), key,
                                                   text_of(value), flag.range));
}

}  // namespace

Status set_flags(const FlagValues& values, RunOptions& options) {
  for (const auto& [name, value] : values) {
    if (std::ranges::find(training_flags(), name, &TrainingFlag::name) == training_flags().end() ||
        name.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--{}: training has no flag of this name", name));
    }
  }
  if (values.contains("steps") && values.contains("epochs")) {
    return fail(ErrorCode::kInvalidArgument, "--epochs says how many --steps there are: give one");
  }
  for (const TrainingFlag& flag : training_flags()) {
    const auto given = values.find(flag.name);
    if (given == values.end()) continue;
    VOLTA_TRY(check_value(flag, given->second));
    set(flag, given->second, options);
  }
  // A run that had epochs gets the steps that are given instead.
  if (values.contains("steps")) options.epochs = 0;
  // With a model from a folder, --context is the sequence length to train on.
  if (!options.init.empty() && values.contains("context")) {
    options.trainer.time = options.model.context;
  }
  return {};
}

Status check_needs(const FlagValues& values, const RunOptions& options) {
  for (const TrainingFlag& flag : training_flags()) {
    const auto given = values.find(flag.name);
    if (given == values.end() || is_off(given->second)) continue;
    for (const NeedRule& rule : kNeedRules) {
      if ((flag.needs & rule.need) == 0 || rule.met(options)) continue;
      return fail(ErrorCode::kInvalidArgument, fmt::format("--{} {}", flag.name, rule.message));
    }
  }
  return {};
}

Status check_ranges(const RunOptions& options) {
  for (const TrainingFlag& flag : training_flags()) {
    const std::string_view key = key_in(flag, "");
    if (key.empty() || flag.range.empty()) continue;
    const FlagValue value = flag.field.get(options);
    if (in_range(flag, value)) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("run: {} is {}; it must be {}", key, text_of(value), flag.range));
  }
  return {};
}

void write_flags(JsonWriter& json, std::string_view object, const RunOptions& options) {
  for (const TrainingFlag& flag : training_flags()) {
    const std::string_view key = key_in(flag, object);
    if (!key.empty()) write_value(json, key, flag, options);
  }
}

void write_training_objects(JsonWriter& json, const RunOptions& options) {
  write_flags(json.key("training").begin_object(), "training", options);
  json.end_object();
  if (!options.lora.active()) return;
  write_flags(json.key("lora").begin_object(), "lora", options);
  json.end_object();
}

void write_agreed_flags(JsonWriter& json, const RunOptions& options) {
  for (const TrainingFlag& flag : training_flags()) {
    const std::string_view key = key_in(flag, "");
    if (key.empty() || key == "tokenizer" || flag.resume == OnResume::kMayChange) continue;
    write_value(json, key, flag, options);
  }
}

Status read_flags(const JsonRef& ref, std::string_view object, RunOptions& options) {
  for (const TrainingFlag& flag : training_flags()) {
    const std::string_view key = key_in(flag, object);
    if (key.empty()) continue;
    if (flag.added_later) {
      VOLTA_TRY(const auto member, ref.optional_member(key));
      if (!member) continue;
    }
    VOLTA_TRY(const FlagValue value, read_value(ref, key, flag));
    VOLTA_TRY(check_read_value(ref, key, flag, value));
    set(flag, value, options);
  }
  return {};
}

bool is_absent_default(std::string_view key, std::string_view value) {
  const RunOptions defaults;
  return std::ranges::any_of(training_flags(), [&](const TrainingFlag& flag) {
    return flag.key == key && flag.added_later && text_of(flag.field.get(defaults)) == value;
  });
}

namespace {

bool has_rule(std::string_view key, OnResume rule) {
  return std::ranges::any_of(training_flags(), [&](const TrainingFlag& flag) {
    return flag.key == key && flag.resume == rule;
  });
}

}  // namespace

bool may_extend(std::string_view key) { return has_rule(key, OnResume::kMayExtend); }
bool may_adjust(std::string_view key) { return has_rule(key, OnResume::kMayAdjust); }

std::string option_of(std::string_view key) {
  if (key == "seed") return "--seed";  // Options of all commands, which the table has no names for.
  if (key == "training.compute_dtype") return "--dtype";
  if (key == "model.norm_bias") return "--bias";  // The first one of those that this flag sets.
  if (key == "model.tied_output") return "--untied";
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.key == key && !flag.name.empty()) return fmt::format("--{}", flag.name);
  }
  return std::string(key);
}

}  // namespace volta
