#include "train/run_folder.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "formats/adapter.h"
#include "formats/hub_cache.h"
#include "train/checkpoint_manifest.h"
#include "train/event_file.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxRunFileBytes = std::int64_t{1} << 20;

bool holds_model(const std::string& directory) {
  return path_exists(join_path(directory, "config.json")) ||
         path_exists(join_path(directory, kAdapterConfigFile));
}

std::unexpected<Error> holds_both(const std::string& path, const std::string& newest) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' holds a model of its own and the checkpoints of a run: name one "
                          "of these ('{}'), or move either to another folder",
                          path, newest));
}

// Checks a folder that itself holds a model. A checkpoint, which has a manifest of Volta's, is
// verified.
Status check_model_folder(const std::string& path, const Interruption& interrupted) {
  VOLTA_TRY(const auto checkpoints, list_checkpoints(path));
  if (!checkpoints.empty()) return holds_both(path, checkpoints.front().path);
  VOLTA_TRY(const bool checkpoint, has_manifest(path));
  if (!checkpoint) return {};
  auto opened = open_checkpoint(path, interrupted);
  if (opened) return {};
  return std::unexpected(
      std::move(opened).error().with_context(fmt::format("checkpoint {}", path)));
}

// `path` itself when it is a model or an adapter, otherwise the checkpoint that represents the run
// in it. `wanted` is "model" or "adapter", for the message.
Result<std::string> find_folder(const std::string& path, std::string_view wanted,
                                const Interruption& interrupted) {
  if (holds_model(path)) {
    VOLTA_TRY(check_model_folder(path, interrupted));
    return path;
  }
  if (!is_directory(path)) {
    if (path_exists(path)) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("'{}' is a file: name the folder that it lies in", path));
    }
    if (wanted == "model") return no_model_folder(path);
    return fail(ErrorCode::kNotFound, fmt::format("no {} folder at '{}'", wanted, path));
  }
  VOLTA_TRY(auto checkpoint, run_checkpoint(path, interrupted));
  if (!checkpoint) {
    return fail(ErrorCode::kNotFound,
                fmt::format("'{}' holds neither {} nor a valid checkpoint: `volta verify {}` says "
                            "what is in it",
                            path, wanted == "model" ? "a config.json" : "an adapter_config.json",
                            shell_quoted(path)));
  }
  return std::move(checkpoint->path);
}

// The path of the model that the adapter in a folder was trained on; "BASE" when it is unknown.
std::string base_name(const std::string& folder) {
  const auto base = recorded_base(folder);
  return base && *base ? shell_quoted((*base)->path) : "BASE";
}

// Whether a name in the folder of a run is that of a file which the run writes, or of an earlier
// one that it keeps (metrics.jsonl.cut, metrics.jsonl.old.2).
bool is_name_of_run_file(std::string_view name) {
  const auto is_or_begins_with = [&](std::string_view own) {
    return name.starts_with(own) && (name.size() == own.size() || name[own.size()] == '.');
  };
  return name == kLockFile || is_or_begins_with(kRunFile) || is_or_begins_with(kMetricsFile) ||
         is_or_begins_with(kLossPlotFile);
}

// Whether a folder in that of a run holds nothing but what the run writes. Checkpoints that it has
// renamed (step-3.invalid) count, too.
bool is_name_of_run_subfolder(std::string_view name) {
  return name == kTensorboardFolder || step_of(name.substr(0, name.find('.')));
}

}  // namespace

Result<bool> holds_run(const std::string& directory) {
  VOLTA_TRY(const auto checkpoints, list_checkpoints(directory));
  return !checkpoints.empty() || path_exists(join_path(directory, kRunFile)) ||
         path_exists(join_path(directory, kMetricsFile));
}

Result<bool> is_place_of_run_file(const std::string& path) {
  const std::string name = file_name(path);
  // Names that only a run gives, wherever the file is.
  if (name == kLockFile || name.starts_with(kEventFilePrefix)) return true;
  const auto place = real_path(parent_path(path));
  if (!place) return false;  // There is no such folder yet.
  VOLTA_TRY(const bool checkpoint, has_manifest(*place));
  if (checkpoint) return true;
  VOLTA_TRY(const bool in_run, holds_run(*place));
  if (in_run) return is_name_of_run_file(name);
  if (!is_name_of_run_subfolder(file_name(*place))) return false;
  return holds_run(parent_path(*place));
}

Status write_run_file(const RunOptions& options, const RunProgress& progress) {
  JsonWriter json(2);
  json.begin_object();
  write_option_fields(json, options);
  if (progress.best) {
    json.key("best").begin_object().field("step", progress.best->step);
    json.field("val_loss", progress.best->val_loss).end_object();
  }
  json.field("stopped_early", progress.stopped_early).end_object();
  return write_file_atomic(join_path(options.out, kRunFile), std::move(json).take() + "\n");
}

Result<RunProgress> load_run_progress(const std::string& run_directory) {
  const std::string path = join_path(run_directory, kRunFile);
  VOLTA_TRY(const std::string text, read_text_file(path, kMaxRunFileBytes));
  VOLTA_TRY(const JsonValue json, parse_json(text, path, {.max_bytes = kMaxRunFileBytes}));
  const JsonRef root(json, path);
  RunProgress progress;
  VOLTA_TRY(progress.stopped_early, root.get_bool_or("stopped_early", false));
  VOLTA_TRY(const auto best, root.optional_member("best"));
  if (best) {
    progress.best.emplace();
    VOLTA_TRY(progress.best->step, best->get_int("step", 0, kMaxPlausibleCount));
    VOLTA_TRY(progress.best->val_loss, best->get_float("val_loss"));
  }
  return progress;
}

Result<std::vector<Error>> check_run_folder(const std::string& path) {
  VOLTA_TRY(const auto checkpoints, list_checkpoints(path));
  std::vector<Error> errors;
  if (holds_model(path) && !checkpoints.empty()) {
    errors.push_back(holds_both(path, checkpoints.front().path).error());
  }
  if (!path_exists(join_path(path, kRunFile))) return errors;
  if (!holds_model(path) && checkpoints.empty()) {
    errors.emplace_back(ErrorCode::kNotFound,
                        fmt::format("'{}' is the folder of a run without a checkpoint: `volta "
                                    "train --out {} --resume --data FILE` begins it again",
                                    path, shell_quoted(path)));
  }
  const auto options = load_run_options(path);
  const auto progress = load_run_progress(path);
  if (!options) {
    errors.push_back(options.error());
  } else if (!progress) {
    errors.push_back(progress.error());
  }
  return errors;
}

Result<std::optional<Checkpoint>> run_checkpoint(const std::string& run_directory,
                                                 const Interruption& interrupted) {
  const auto progress = load_run_progress(run_directory);
  if (!progress || !progress->stopped_early || !progress->best) {
    return newest_valid_checkpoint(run_directory, interrupted);
  }
  const std::string path = checkpoint_path(run_directory, progress->best->step);
  if (!path_exists(path))
    return newest_valid_checkpoint(run_directory, interrupted);  // --no-keep-best.
  auto best = open_checkpoint(path, interrupted);
  if (best) return std::optional(*std::move(best));
  const ErrorCode code = best.error().code();
  if (code == ErrorCode::kInterrupted || code == ErrorCode::kOutOfMemory) {
    return std::unexpected(std::move(best).error());  // It may well be valid.
  }
  log(LogLevel::kWarning,
      fmt::format("the best checkpoint of {} cannot be used, the newest is taken instead: {}",
                  run_directory, best.error().message()));
  return newest_valid_checkpoint(run_directory, interrupted);
}

Result<std::string> find_model_folder(const std::string& path, const Interruption& interrupted) {
  VOLTA_TRY(std::string folder, find_folder(path, "model", interrupted));
  if (path_exists(join_path(folder, "config.json"))) return folder;
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("'{}' holds an adapter, no model: `volta merge {} --adapter {} --out DIR` "
                  "makes a model of it and its base; generate, chat, eval and logits also take "
                  "the base model with --adapter",
                  folder, base_name(folder), shell_quoted(folder)));
}

Result<std::string> find_adapter_folder(const std::string& path, const Interruption& interrupted) {
  VOLTA_TRY(std::string folder, find_folder(path, "adapter", interrupted));
  if (path_exists(join_path(folder, kAdapterConfigFile))) return folder;
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("'{}' holds a model, no adapter: it has no {}", folder, kAdapterConfigFile));
}

}  // namespace volta
