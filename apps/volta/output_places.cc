// Checks of the places that results are written to: see command.h. No result replaces what the same
// command reads.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/file_ops.h"
#include "base/temporary.h"
#include "command.h"
#include "formats/adapter.h"
#include "formats/carried_files.h"
#include "formats/gguf/gguf_name.h"
#include "formats/hub_cache.h"
#include "formats/new_folder.h"
#include "train/checkpoint.h"
#include "train/checkpoint_manifest.h"
#include "train/run_folder.h"
#include "train/run_options.h"
#include "tuner/tuning_cache.h"

namespace volta::cli {
namespace {

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Whether a folder with a file of this name holds a model, an adapter or a run.
bool marks_model_folder(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "config.json",      kAdapterConfigFile, kAdapterWeightsFile, "model.safetensors.index.json",
      kMetricsFile,       kManifestFile,      kTrainerFile,        kRunFile,
      "model.safetensors"};
  return is_one_of(name, kNames) || (name.starts_with("model-") && name.ends_with(".safetensors"));
}

// Whether a name is that of a file of a model, an adapter or a run.
bool is_model_file_name(std::string_view name) {
  return marks_model_folder(name) || is_one_of(name, carried_file_names()) || has_gguf_name(name);
}

// Whether `file` is a file of the model, the adapter or the run in `folder` under another name, for
// example the target of a link. A run's checkpoints are searched, too.
bool is_file_of_model(const std::string& file, const std::string& folder) {
  const auto names = list_directory(folder);
  if (!names) return false;
  return std::ranges::any_of(*names, [&](const std::string& name) {
    const std::string path = join_path(folder, name);
    return is_model_file_name(name) ? is_same_place(path, file)
                                    : name.starts_with("step-") && is_file_of_model(file, path);
  });
}

// Refuses to replace a file that this command reads. Every other value on the command line that
// leads to the file counts, so that no list of inputs can be incomplete.
Status check_not_read(const Globals& globals, const std::string& path, std::string_view flag) {
  if (!path_exists(path)) return {};
  const auto refuse = [&](const std::string& what) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}{}{}: this is {}, which a result does not replace; give another "
                            "name",
                            flag, flag.empty() ? "" : " ", path, what));
  };
  for (const GivenValue& given : globals.values) {
    if (given.option == flag) continue;
    const std::string name = given.option.empty() ? "'" + given.value + "'" : given.option;
    if (is_same_place(given.value, path)) return refuse("the file of " + name);
    const auto model = find_model_path(given.value);  // It may be a name in the hub's cache.
    if (model && is_file_of_model(path, *model)) return refuse("a file of " + name);
  }
  const auto tuning = tuner::TuningCache::open();
  return tuning && is_same_place(tuning->path(), path) ? refuse("the table of `volta tune`")
                                                       : Status();
}

}  // namespace

Status make_folder_of(const std::string& path, std::string_view flag) {
  Status made = create_directories(parent_path(path));
  if (made) return {};
  return std::unexpected(
      std::move(made).error().with_context(flag.empty() ? path : fmt::format("{} {}", flag, path)));
}

namespace {

// Tries to make the folders above a file. They are removed again, because the work that comes
// before the file may fail.
Status try_folder_of(const std::string& path, std::string_view flag) {
  std::vector<std::string> missing;
  for (std::string place = parent_path(path); !path_exists(place); place = parent_path(place)) {
    missing.push_back(place);
  }
  Status made = make_folder_of(path, flag);
  for (const std::string& place : missing) file_ops().rmdir(place);
  return made;
}

}  // namespace

Status check_result_file(const Globals& globals, const std::string& path, std::string_view flag) {
  VOLTA_TRY(check_output_file(globals, path, flag));
  if (!path_exists(path)) return {};
  VOLTA_TRY(const bool of_run, is_place_of_run_file(path));
  if (!of_run && !is_model_file_name(file_name(path)) && !is_temporary_name(file_name(path))) {
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}{}{}: this is a file of a model or a run, which a result does not "
                          "replace; give another name",
                          flag, flag.empty() ? "" : " ", path));
}

Status check_tokenizer_folder(const std::string& folder, std::string_view flag) {
  const auto names = list_directory(folder);  // A folder that is still to be made has none.
  if (!names || std::ranges::none_of(*names, marks_model_folder)) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} {}: the folder holds a model, an adapter or a run, whose tokenizer a "
                          "new one does not replace; name another folder",
                          flag, folder));
}

Status check_output_file(const Globals& globals, const std::string& path, std::string_view flag) {
  const std::string what = flag.empty() ? path : fmt::format("{} {}", flag, path);
  if (auto place = check_replaceable(path); !place) {
    return std::unexpected(std::move(place).error().with_context(what));
  }
  VOLTA_TRY(check_not_read(globals, path, flag));
  if (!path_exists(path)) return try_folder_of(path, flag);
  if (globals.force) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: the file is there already; name another one, or replace it with "
                          "--force",
                          what));
}

namespace {

// --force replaces a model, but neither the folder of a run, nor a checkpoint, nor an adapter.
Status refuse_run(const std::string& directory) {
  if (!is_directory(directory)) return {};
  if (path_exists(join_path(directory, kAdapterConfigFile))) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is the folder of an adapter; name another one", directory));
  }
  VOLTA_TRY(const bool checkpoint, has_manifest(directory));
  if (checkpoint || path_exists(join_path(directory, "trainer.safetensors"))) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is a checkpoint of a training run; name another folder", directory));
  }
  VOLTA_TRY(const auto checkpoints, list_checkpoints(directory));
  if (checkpoints.empty() && !path_exists(join_path(directory, kRunFile))) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is the folder of a training run; name another one", directory));
}

}  // namespace

Status check_output_folder(const Globals& globals, const std::string& path,
                           const std::string& source) {
  const bool force = globals.force;
  if (force) VOLTA_TRY(refuse_run(path));
  for (const GivenValue& given : globals.values) {
    const bool file = given.value != source && !is_directory(given.value);
    if (!file || !is_file_of_model(given.value, path)) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' holds the file of {}, which this command reads; name another "
                            "folder",
                            path, given.option));
  }
  VOLTA_TRY(check_source_stays(source, path));
  if (force && is_directory(source)) VOLTA_TRY(check_gives_way(path, source));
  return check_new_folder(path, force);
}

}  // namespace volta::cli
