// volta train: trains a model on a text file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "formats/hub_cache.h"
#include "train/flag_values.h"
#include "train/presets.h"
#include "train/run.h"
#include "train/run_folder.h"
#include "train/training_flags.h"
#include "training_progress.h"

namespace volta::cli {
namespace {

constexpr std::string_view kDefaultPreset = "tiny";

// A flag of the table and its value on the command line: one of the members, according to its type.
struct Argument {
  const TrainingFlag* flag = nullptr;
  std::optional<std::int64_t> whole = {};
  std::optional<double> real = {};
  std::optional<bool> on = {};
  std::optional<std::string> text = {};
  std::vector<std::string> paths = {};
};
using Arguments = std::list<Argument>;  // The parser keeps addresses of the values.

FlagValues values_of(const Arguments& arguments) {
  FlagValues values;
  for (const Argument& argument : arguments) {
    const std::string_view name = argument.flag->name;
    if (argument.whole) values[name] = *argument.whole;
    if (argument.real) values[name] = *argument.real;
    if (argument.on) values[name] = *argument.on;
    if (argument.text) values[name] = *argument.text;
    if (!argument.paths.empty()) values[name] = argument.paths;
  }
  return values;
}

std::string text_of(const FlagValues& values, std::string_view name) {
  const auto found = values.find(name);
  return found == values.end() ? "" : std::get<std::string>(found->second);
}

bool is_on(const FlagValues& values, std::string_view name) {
  const auto found = values.find(name);
  return found != values.end() && std::get<bool>(found->second);
}

// --out must be the folder of the run, also to resume from one of its checkpoints.
Status check_out(const std::string& out, bool resume) {
  if (out.empty()) return fail(ErrorCode::kInvalidArgument, "--out is required: the run's folder");
  const std::string folder = whole_path(out);
  const std::string run = parent_path(folder);
  if (!resume || path_exists(join_path(folder, kRunFile)) ||
      !path_exists(join_path(folder, "manifest.json")) || !path_exists(join_path(run, kRunFile))) {
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is a checkpoint; its run goes on from the newest one by `volta train "
                          "--out {} --resume`",
                          out, shell_quoted(run)));
}

// The options that the flags change: those of the run in the folder `out`, or of a preset.
Result<RunOptions> starting_options(const std::string& out, bool known_run,
                                    const std::string& preset_name) {
  if (!known_run) return preset(preset_name.empty() ? kDefaultPreset : preset_name);
  VOLTA_TRY(const RunOptions run, load_run_options(out));
  if (const auto progress = load_run_progress(out); !progress) {
    log(LogLevel::kWarning, fmt::format("{}; the newest checkpoint's own record of it is used",
                                        progress.error().message()));
  }
  if (preset_name.empty()) return run;
  return preset(preset_name, run);
}

// The folder of --out under a name that can be renamed and extended ("run.old"): without the
// slashes and dots behind its own name, and with such a name in place of "." or "..".
std::string folder_name(const std::string& path) {
  std::string_view name = path;
  while (name.size() > 1 && (name.ends_with('/') || name.ends_with("/."))) name.remove_suffix(1);
  const std::string last = file_name(name);
  return last == "." || last == ".." ? whole_path(path) : std::string(name);
}

// A path of this flag as it is stored: absolute, so that the run can be resumed from any directory.
std::string stored_path(std::string_view flag, const std::string& path) {
  if (find_invalid_utf8(path)) {
    log(LogLevel::kWarning,
        fmt::format("--{0}: the name '{1}' is not UTF-8, so run.json cannot keep it; give --{0} "
                    "again with --resume",
                    flag, path));
  }
  return whole_path(path);
}

Status complete_paths(FlagValues& values) {
  if (values.contains("val-data")) {
    values["val-data"] = stored_path("val-data", text_of(values, "val-data"));
  }
  if (const auto data = values.find("data"); data != values.end()) {
    std::vector<std::string> paths = std::get<std::vector<std::string>>(data->second);
    for (std::string& path : paths) path = stored_path("data", path);
    data->second = std::move(paths);
  }
  if (!values.contains("init")) return {};
  VOLTA_TRY(refuse_gguf(text_of(values, "init")));
  VOLTA_TRY(const std::string place, find_model_path(text_of(values, "init")));
  values["init"] =
      path_exists(place) ? stored_path("init", place) : place;  // As given, for the message.
  return {};
}

// Checks --init on --resume. It may repeat what the run began with, as a path of the model or of
// the run that holds it, and it may tell where that model has moved to. Anything else is refused.
// The weights of an adapter's base are compared later.
Status check_init(const RunOptions& run, FlagValues& values) {
  const auto given = values.find("init");
  if (given == values.end() || run.lora.active()) return {};
  const std::string init = text_of(values, "init");
  if (run.init.empty()) {
    return fail(ErrorCode::kMismatch,
                fmt::format("--init {}: the run in {} began with fresh weights; leave --init out, "
                            "or start a new run (--out NEW, without --resume)",
                            init, run.out));
  }
  if (!path_exists(run.init)) {
    VOLTA_TRY(find_model_folder(init, interrupted));
    return {};
  }
  if (is_same_place(init, run.init) || is_inside(run.init, init)) {
    given->second = run.init;  // The newest checkpoint of that run may be another one now.
    return {};
  }
  return fail(ErrorCode::kMismatch,
              fmt::format("--init {}: the run in {} began with {}; leave --init out, or start a "
                          "new run (--out NEW, without --resume)",
                          init, run.out, run.init));
}

Result<RunOptions> make_options(FlagValues values, const Globals& globals) {
  const std::string out = folder_name(text_of(values, "out"));
  if (!out.empty()) values["out"] = out;
  const bool resume = is_on(values, "resume");
  VOLTA_TRY(check_out(out, resume));
  if (resume && globals.force) {
    return fail(ErrorCode::kInvalidArgument,
                "--force replaces a run, --resume goes on with it: leave one of them out");
  }
  const bool known_run = resume && path_exists(join_path(out, kRunFile));
  VOLTA_TRY(RunOptions options, starting_options(out, known_run, text_of(values, "preset")));
  VOLTA_TRY(complete_paths(values));
  if (known_run) VOLTA_TRY(check_init(options, values));
  VOLTA_TRY(set_flags(values, options));
  if (options.data.empty() && resume) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--out {}: there is no {}, which names what a run reads; name the "
                            "folder of a run, or give --data and its other options again",
                            out, kRunFile));
  }
  if (options.data.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "--data is required: a text file, a .jsonl file of conversations, or a "
                ".safetensors or .bin file of token ids");
  }
  VOLTA_TRY(check_needs(values, options));
  options.force = globals.force;
  options.batch_by_memory = !resume && !options.init.empty() && !values.contains("batch");
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
      fmt::format("{} in {}", counted(result.new_steps, "step"), format_duration(result.seconds));
  if (result.new_steps < result.steps) text += fmt::format(" ({} in all)", result.steps);
  if (result.loss) text += fmt::format(", loss {:.4f} (last step)", *result.loss);
  if (result.val_loss) text += fmt::format(", val_loss {:.4f}", *result.val_loss);
  if (result.end == RunEnd::kEarlyStop) text += " (stopped early)";
  if (result.best && result.best->step != result.steps) {
    text += fmt::format("\nbest: val_loss {:.4f} after step {}", result.best->val_loss,
                        result.best->step);
  }
  return text + fmt::format("\nmodel: {}\n", result.checkpoint);
}

Status run_training(Globals globals, const FlagValues& values) {
  if (is_on(values, "force")) globals.force = true;
  VOLTA_TRY(const Output output, parse_output(globals, {Output::kText, Output::kJson}));
  if (globals.weights != "stored") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--weights {}: training keeps its weights as f32; `volta quantize` "
                            "narrows those of a trained model",
                            globals.weights));
  }
  VOLTA_TRY(const RunOptions options, make_options(values, globals));
  const bool chosen = values.contains("lr") || values.contains("preset") || options.resume;
  if (!options.init.empty() && !chosen) {
    note(
        fmt::format("learning rate: {}, as for a fresh model; adapters mostly take 1e-4 to 1e-3, "
                    "all weights 1e-5 to 1e-4 (--lr)\n",
                    options.trainer.schedule.lr));
  }
  std::vector<std::string> paths = options.data;  // A resumed run names them in its folder.
  paths.insert(paths.end(), {options.val_data, options.init, options.tokenizer, options.out});
  for (const std::string& path : paths) globals.values.push_back({"", path});
  VOLTA_TRY(const Session session, Session::create(globals));
  auto trained = train_with_progress(options, session.device());
  VOLTA_TRY(session.finish(trained ? trained->checkpoint : ""));  // Also after an error.
  VOLTA_TRY(const RunResult result, std::move(trained));
  return print(output == Output::kJson ? result_json(result) : result_text(result));
}

std::string_view heading(FlagGroup group) {
  switch (group) {
    case FlagGroup::kRun:
      return "Run";
    case FlagGroup::kModel:
      return "Model";
    case FlagGroup::kTraining:
      return "Training";
    case FlagGroup::kLora:
      return "LoRA (an adapter for --init's model is trained, not its weights)";
  }
  return "";
}

// The help of a flag with the default of the preset that is used unless another one is named.
std::string help_of(const TrainingFlag& flag, const RunOptions& defaults) {
  const bool says_so = flag.help.contains("default");
  if (says_so || flag.field.get == nullptr || flag.group == FlagGroup::kLora) {
    return std::string(flag.help);
  }
  const FlagValue value = flag.field.get(defaults);
  std::string text;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) text = fmt::format("{}", *whole);
  if (const auto* real = std::get_if<double>(&value)) {
    text = flag.field.type == FlagType::kReal32 ? fmt::format("{}", static_cast<float>(*real))
                                                : fmt::format("{}", *real);
  }
  if (const auto* word = std::get_if<std::string>(&value)) text = *word;
  return text.empty() ? std::string(flag.help) : fmt::format("{} (default: {})", flag.help, text);
}

Option* add_argument(Command& command, Argument& argument, const RunOptions& defaults) {
  const TrainingFlag& flag = *argument.flag;
  const std::string help = help_of(flag, defaults);
  const std::string name = fmt::format("--{}", flag.name);
  switch (flag.field.type) {
    case FlagType::kWhole:
      return command.add_option(name, argument.whole, help);
    case FlagType::kReal:
    case FlagType::kReal32:
      return command.add_option(name, argument.real, help);
    case FlagType::kSwitch:
      return command.add_flag(
          has_negative_form(flag) ? fmt::format("{},!--no-{}", name, flag.name) : name, argument.on,
          help);
    case FlagType::kPaths:
      return command.add_option(name, argument.paths, help)->allow_extra_args(false)->take_all();
    case FlagType::kText:
    case FlagType::kWord:
      break;
  }
  std::vector<std::string> words(flag.field.words.begin(), flag.field.words.end());
  if (flag.name == "preset") words = preset_names();
  return command.add_option(name, argument.text, help)->suggest(words);
}

// Whether a flag names a file or folder. None of them may be standard input, because a resumed run
// reads its data again.
bool is_place(std::string_view flag) {
  static constexpr std::array kPlaces = {"data", "val-data", "out", "init", "tokenizer"};
  return std::ranges::find(kPlaces, flag) != kPlaces.end();
}

void add_arguments(Command& command, Arguments& arguments) {
  const auto defaults = preset(kDefaultPreset);
  const RunOptions values = defaults ? *defaults : RunOptions();
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.name.empty()) continue;
    arguments.push_back({.flag = &flag});
    Option* option = add_argument(command, arguments.back(), values)->group(heading(flag.group));
    if (flag.name == "out") option->check(refuse_empty);
    if (is_place(flag.name)) option->not_a_stream();
  }
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
  auto arguments = std::make_shared<Arguments>();
  add_arguments(*command, *arguments);
  std::string names;
  for (const PresetInfo& info : presets()) {
    names += fmt::format("\n  {:<22} {}", info.name, info.summary);
  }
  command->footer(fmt::format("Presets set every option that is not given (default: {}):{}",
                              kDefaultPreset, names));
  command->callback([&globals, &action, arguments] {
    action = [&globals, arguments] { return run_training(globals, values_of(*arguments)); };
  });
}

}  // namespace volta::cli
