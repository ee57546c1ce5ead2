#include "train/settings.h"

#include <fmt/format.h>

#include <limits>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "base/file.h"
#include "base/text.h"
#include "formats/model_config.h"
#include "train/checkpoint_manifest.h"
#include "train/flag_values.h"
#include "train/training_flags.h"

namespace volta {
namespace {

// The first leaf of `current` that `saved` lacks or has with another value. Numbers are compared as
// text, so 1 and 1.0 would differ; both sides come from the same writer.
std::optional<std::string> first_difference(const JsonValue& current, const JsonValue& saved,
                                            const std::string& path, bool may_be_extended) {
  const JsonValue::Object* members = current.if_object();
  if (members == nullptr) {
    if (current.leaf_text() == saved.leaf_text()) return std::nullopt;
    return fmt::format("{} is {}, the checkpoint has {}", path, current.leaf_text(),
                       saved.leaf_text());
  }
  for (const auto& [key, value] : *members) {
    const std::string name = path.empty() ? key : fmt::format("{}.{}", path, key);
    if (may_adjust(name) || (may_be_extended && may_extend(name))) continue;
    const JsonValue* other = saved.find(key);
    if (other == nullptr && is_absent_default(name, value.leaf_text())) continue;
    if (other == nullptr && name == "ids_xxh3") continue;  // Of an earlier version.
    if (other == nullptr) return fmt::format("{} is not in the checkpoint", name);
    if (auto found = first_difference(value, *other, name, may_be_extended)) return found;
  }
  return std::nullopt;
}

// The number of steps in the saved settings, if it is not that of the current ones.
Result<std::optional<std::int64_t>> other_steps(const std::string& current, const JsonRef& saved) {
  VOLTA_TRY(const JsonValue json, parse_json(current, "settings"));
  VOLTA_TRY(const JsonRef training, JsonRef(json, "settings").member("training"));
  VOLTA_TRY(const JsonRef saved_training, saved.member("training"));
  VOLTA_TRY(const std::int64_t steps, training.get_int("steps"));
  VOLTA_TRY(const std::int64_t before, saved_training.get_int("steps"));
  return steps == before ? std::nullopt : std::optional(before);
}

// The values of kMayAdjust that differ, as "lr 0.0005 instead of 0.001".
Result<std::vector<std::string>> adjustments(const std::string& current, const JsonRef& saved) {
  VOLTA_TRY(const JsonValue json, parse_json(current, "settings"));
  std::vector<std::string> found;
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.resume != OnResume::kMayAdjust) continue;
    const std::string_view object = flag.key.substr(0, flag.key.find('.'));
    const std::string_view key = flag.key.substr(object.size() + 1);
    VOLTA_TRY(const JsonRef now, JsonRef(json, "settings").member(object));
    VOLTA_TRY(const JsonRef now_value, now.member(key));
    VOLTA_TRY(const JsonRef before, saved.member(object));
    VOLTA_TRY(const JsonRef value, before.member(key));
    const std::string text = now_value.node().leaf_text(), old = value.node().leaf_text();
    if (text != old) found.push_back(fmt::format("{} {} instead of {}", flag.name, text, old));
  }
  return found;
}

// Describes the model that a new run can start from, with the commands. An adapter must be merged
// first.
std::string model_of(std::string_view checkpoint, bool adapter) {
  const std::string place = shell_quoted(checkpoint);
  if (!adapter)
    return fmt::format("this model: `volta train --init {} --data FILE --out NEW`", place);
  return fmt::format(
      "its merged model: `volta merge BASE --adapter {} --out MODEL`, then `volta "
      "train --init MODEL --data FILE --out NEW`",
      place);
}

// The member "validation_xxh3" of the settings' "data"; null when the run had no file to validate
// with.
const JsonValue* validation_hash(const JsonValue& settings) {
  const JsonValue* data = settings.find("data");
  return data == nullptr ? nullptr : data->find("validation_xxh3");
}

// What the user can do about data that differs; `recorded` as for parse_run_state().
std::string data_advice(std::string_view difference, const JsonRef& saved,
                        const RunOptions* recorded) {
  if (difference.starts_with("ids_xxh3")) {
    return "The tokenizer or the chat template of the base is no longer what it was: resume with "
           "the base as it was (--init)";
  }
  if (!difference.starts_with("data.validation")) {
    return "The data is no longer what the run was trained on: give it that data again (--data)";
  }
  if (validation_hash(saved.node()) == nullptr) {
    if (recorded == nullptr || recorded->val_data.empty()) {
      return "The run had no file to validate with: leave --val-data out";
    }
    return fmt::format("The run had no file to validate with: set val_data in {} to \"\" again",
                       join_path(recorded->out, kRunFile));
  }
  return "The validation data is no longer what the run was evaluated with: give it that data "
         "again (--val-data)";
}

// The text of the value at a path such as "model.norm_eps"; nullopt when there is none.
std::optional<std::string> text_at(const JsonValue& json, std::string_view path) {
  const JsonValue* value = &json;
  while (value != nullptr && !path.empty()) {
    const std::size_t dot = path.find('.');
    value = value->find(path.substr(0, dot));
    path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
  }
  return value == nullptr ? std::nullopt : std::optional(value->leaf_text());
}

// Whether the setting `key` has its current value from run.json. An option of the command line
// would have given it another value than that in the file.
Result<bool> is_recorded(std::string_view key, const std::string& current,
                         const RunOptions& recorded) {
  RunOptions options = recorded;
  if (options.init.empty()) {
    VOLTA_TRY(options.model, complete_sizes(options.model));  // As in the current settings.
  }
  VOLTA_TRY(const JsonValue settings, parse_json(current, "settings"));
  VOLTA_TRY(const JsonValue file, parse_json(to_json(options), kRunFile));
  const auto value = text_at(settings, key);
  return value && value == text_at(file, key);
}

// A setting that differs, and what the user can do about it. Of a value in run.json the message has
// its name there, of all others that of their option.
Result<std::string> advice(const std::string& difference, const std::string& current,
                           const JsonRef& saved, const RunOptions* recorded) {
  if (difference.starts_with("data.") || difference.starts_with("ids_xxh3"))
    return fmt::format("{}. {}", difference, data_advice(difference, saved, recorded));
  const std::string_view key = std::string_view(difference).substr(0, difference.find(' '));
  bool from_file = false;
  if (recorded != nullptr) {
    VOLTA_TRY(from_file, is_recorded(key, current, *recorded));
  }
  if (!from_file && may_extend(key)) {
    return fmt::format("{}{}. A resumed run may only have more of them: give more, leave {} out",
                       option_of(key), std::string_view(difference).substr(key.size()),
                       option_of(key));
  }
  if (!from_file) {
    return fmt::format(
        "{}{}. A resumed run keeps the settings that decide its numbers: leave out what changes "
        "this "
        "one (its option, or --preset), or give it its old value",
        option_of(key), std::string_view(difference).substr(key.size()));
  }
  return fmt::format(
      "{}. A resumed run keeps the settings that decide its numbers, and {} has another value than "
      "the checkpoint: put {} back there",
      difference, join_path(recorded->out, kRunFile),
      text_at(saved.node(), key).value_or("the default"));
}

}  // namespace

std::string settings_json(const RunOptions& o, const Dataset& data) {
  JsonWriter json;
  json.begin_object();
  json.key("data").begin_object().field("bytes", data.bytes).field("xxh3", data.xxh3);
  if (data.validation_file) json.field("validation_xxh3", data.validation_file->xxh3);
  json.end_object();
  // Records the option where it decides the tokenizer. A resumed run loads the tokenizer of its
  // checkpoint, which does not show the option.
  const bool asked = data.is_text && o.init.empty();
  json.field("tokenizer", asked ? o.tokenizer : data.tokenizer ? data.tokenizer->kind() : "none");
  write_agreed_flags(json, o);
  write_config_fields(json.key("model"), o.model);
  write_training_objects(json, o);
  // An adapter's checkpoint has no tokenizer: a resumed run takes its base's, which may have
  // changed. It is the last member because the ids depend on the others, too.
  if (o.lora.active()) json.field("ids_xxh3", data.ids_xxh3());
  json.end_object();
  return std::move(json).take();
}

Result<std::optional<std::string>> compare_settings(const std::string& current,
                                                    const JsonRef& saved) {
  VOLTA_TRY(const JsonValue json, parse_json(current, "settings"));
  VOLTA_TRY(const JsonRef training, JsonRef(json, "settings").member("training"));
  VOLTA_TRY(const std::string schedule, training.get_string("schedule"));
  VOLTA_TRY(const JsonRef saved_training, saved.member("training"));
  VOLTA_TRY(const std::string saved_schedule, saved_training.get_string("schedule"));
  const bool constant = schedule == "constant" && saved_schedule == "constant";
  VOLTA_TRY(const std::int64_t steps, training.get_int("steps"));
  VOLTA_TRY(const std::int64_t saved_steps, saved_training.get_int("steps"));
  const JsonValue* hash = validation_hash(saved.node());
  if (hash != nullptr && validation_hash(json) == nullptr) {
    return fmt::format("data.validation_xxh3 is missing, the checkpoint has {}", hash->leaf_text());
  }
  return first_difference(json, saved.node(), "", constant || steps > saved_steps);
}

std::string to_json(const RunState& state) {
  JsonWriter json;
  json.begin_object().key("settings").raw(state.settings).field("rows_seen", state.rows_seen);
  json.key("best_val_loss");
  state.best ? json.value(state.best->val_loss) : json.null();
  if (state.best) json.field("best_step", state.best->step);
  json.key("loss");
  state.loss ? json.value(*state.loss) : json.null();
  if (state.estimate_due) json.field("estimate_due", true);
  json.field("waited", state.waited).end_object();
  return std::move(json).take();
}

namespace {

// Losses are computed in f32, so a larger number in a file is damage. As the best loss it would
// decide which checkpoint the run keeps.
constexpr double kMaxLoss = std::numeric_limits<float>::max();

// Everything but the settings.
Result<RunState> parse_progress(const JsonRef& root, std::int64_t step) {
  RunState state;
  VOLTA_TRY(state.rows_seen, root.get_int("rows_seen", 0));
  VOLTA_TRY(const auto best, root.optional_member("best_val_loss"));
  if (best) {
    state.best.emplace();
    VOLTA_TRY(state.best->val_loss, best->as_float(-kMaxLoss, kMaxLoss));
    VOLTA_TRY(state.best->step, root.get_int_or("best_step", 0, 0, kMaxPlausibleCount));
    if (state.best->step > step) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}: best_step is {}, but the checkpoint is of step {}", root.path(),
                              state.best->step, step));
    }
  }
  VOLTA_TRY(const auto loss, root.optional_member("loss"));
  if (loss) {
    VOLTA_TRY(state.loss, loss->as_float());
  }
  VOLTA_TRY(state.waited, root.get_int("waited", 0));
  VOLTA_TRY(state.estimate_due, root.get_bool_or("estimate_due", false));
  return state;
}

}  // namespace

Status check_run_state(std::string_view text, std::string_view name, std::int64_t step) {
  VOLTA_TRY(const JsonValue json, parse_json(text, name));
  const JsonRef root(json, name);
  VOLTA_TRY(root.member("settings"));
  VOLTA_TRY(parse_progress(root, step));
  return {};
}

Result<RunState> parse_run_state(std::string_view text, std::string_view name, std::int64_t step,
                                 const std::string& settings, const RunOptions* recorded) {
  VOLTA_TRY(const JsonValue json, parse_json(text, name));
  const JsonRef root(json, name);
  VOLTA_TRY(const JsonRef saved, root.member("settings"));
  VOLTA_TRY(const auto difference, compare_settings(settings, saved));
  if (difference) {
    VOLTA_TRY(const std::string problem, advice(*difference, settings, saved, recorded));
    VOLTA_TRY(const auto lora, saved.optional_member("lora"));
    return fail(ErrorCode::kMismatch, fmt::format("{}: {}, or start a new run from {}", name,
                                                  problem, model_of(name, lora.has_value())));
  }
  VOLTA_TRY(RunState state, parse_progress(root, step));
  state.settings = settings;
  VOLTA_TRY(state.other_steps, other_steps(settings, saved));
  VOLTA_TRY(state.adjustments, adjustments(settings, saved));
  return state;
}

}  // namespace volta
