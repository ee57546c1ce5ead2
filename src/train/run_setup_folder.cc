#include "train/run_setup_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/temporary.h"
#include "base/text.h"
#include "formats/adapter.h"
#include "train/run_folder.h"

namespace volta::run_setup {
namespace {

bool holds_model(const std::string& directory) {
  for (const std::string_view name :
       {std::string_view("config.json"), std::string_view("model.safetensors"),
        std::string_view("model.safetensors.index.json"), kAdapterConfigFile}) {
    if (path_exists(join_path(directory, name))) return true;
  }
  return false;
}

}  // namespace

namespace {

// The files and folders that run.json names and the caller has not given, each with its option.
std::vector<std::pair<std::string_view, std::string>> recorded_files(const RunOptions& options) {
  std::vector<std::pair<std::string_view, std::string>> files;
  for (const std::string& option : options.recorded_paths) {
    if (option == "data") {
      for (const std::string& path : options.data) files.emplace_back(option, path);
    }
    if (option == "val-data") files.emplace_back(option, options.val_data);
    if (option == "init") files.emplace_back(option, options.init);
    if (option == "tokenizer") files.emplace_back(option, options.tokenizer);
  }
  return files;
}

}  // namespace

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

Status check_sources(const RunOptions& options) {
  if (options.resume) return {};
  const bool same = is_same_place(options.init, options.out);
  std::vector<std::string> sources = options.data;
  sources.insert(sources.end(), {options.val_data, options.init});
  const bool replaced = options.force && std::ranges::any_of(sources, [&](const auto& path) {
                          return is_inside(path, options.out);
                        });
  if (!same && !replaced) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is the run's folder, and holds what the run reads: choose another "
                          "folder (--out)",
                          options.out));
}

Status lock_folder(RunSetup& setup) {
  const std::string& out = setup.options.out;
  VOLTA_TRY(create_directories(out));
  VOLTA_TRY(setup.lock, DirectoryLock::acquire(out));
  if (!setup.options.resume && !setup.options.force) {
    VOLTA_TRY(std::string reason, obstacle(out));
    if (!reason.empty()) return fail(ErrorCode::kInvalidArgument, std::move(reason));
  }
  VOLTA_TRY(const bool used, holds_run(out));
  if (used) remove_abandoned_temporaries(out);  // Other folders hold no files of a run.
  return {};
}

Status check_recorded_paths(const RunOptions& options,
                            const std::optional<Checkpoint>& checkpoint) {
  const std::string file = join_path(options.out, kRunFile);
  for (const auto& [option, path] : recorded_files(options)) {
    if (!checkpoint) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{} names '{}', and {} holds no valid checkpoint that says what was in it; "
                      "if that is what the run is to read, give it again: --{} {}",
                      file, path, options.out, option, shell_quoted(path)));
    }
    // The checkpoint holds the tokenizer and, unless it is an adapter, the model.
    const bool is_read = option.ends_with("data") || (option == "init" && options.lora.active());
    if (!is_read || path_exists(path)) continue;
    return fail(ErrorCode::kNotFound,
                fmt::format("{} names '{}', which is not there; say where it is now: --{} PATH",
                            file, path, option));
  }
  return {};
}

Status replace_folder(RunSetup& setup, const Say& say) {
  // Removes slashes at the end.
  const std::string out = join_path(parent_path(setup.options.out), file_name(setup.options.out));
  VOLTA_TRY(const std::string aside, set_aside(out, ".old"));
  say(LogLevel::kWarning, fmt::format("{} is kept as {}", out, aside));
  setup.lock.reset();
  return lock_folder(setup);
}

Result<std::optional<Checkpoint>> open_folder(RunSetup& setup, const Interruption& interrupted,
                                              const Say& say) {
  const std::string& out = setup.options.out;
  if (path_exists(out)) {
    VOLTA_TRY(create_directories(out));  // Fails if it is not a folder.
  }
  VOLTA_TRY(const bool used, holds_run(out));
  const bool model = holds_model(out);
  if (setup.options.resume && model && !used) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} holds a model and no run: there is nothing to resume. To train "
                            "the model further: --init {} --out NEW",
                            out, shell_quoted(out)));
  }
  if (used || model || path_exists(join_path(out, kLockFile))) {
    VOLTA_TRY(lock_folder(setup));
  }
  if (!setup.options.resume) return std::nullopt;
  VOLTA_TRY(auto checkpoint, newest_valid_checkpoint(out, interrupted, CheckpointUse::kResume));
  say(LogLevel::kInfo, checkpoint
                           ? fmt::format("resuming from {}", checkpoint->path)
                           : fmt::format("{} has no valid checkpoint: starting at step 0", out));
  return checkpoint;
}

Status keep_unusable(const RunSetup& setup, std::int64_t first_step, const Say& say) {
  const std::string& out = setup.options.out;
  VOLTA_TRY(const auto places, list_checkpoints(out));
  std::vector<std::pair<std::string, std::string_view>> unusable;
  for (const CheckpointPlace& place : places) {
    if (place.step > first_step) unusable.emplace_back(place.path, ".invalid");
  }
  const std::string metrics = join_path(out, kMetricsFile);
  if (setup.checkpoint.empty() && path_exists(metrics)) unusable.emplace_back(metrics, ".old");
  for (const auto& [path, suffix] : unusable) {
    VOLTA_TRY(const std::string aside, set_aside(path, suffix));
    say(LogLevel::kWarning, fmt::format("{} is kept as {}", path, aside));
  }
  return {};
}

}  // namespace volta::run_setup
