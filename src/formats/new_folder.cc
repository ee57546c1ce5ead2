#include "formats/new_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/replace_folder.h"
#include "formats/safetensors.h"
#include "formats/weight_files.h"

namespace volta {
namespace {

// Creates a folder beside `target` that can replace the empty folder `target`. A trial replacement
// is done first.
Result<TemporaryFolder> create_to_replace(const std::string& target) {
  VOLTA_TRY(TemporaryFolder trial, TemporaryFolder::create(target));
  VOLTA_TRY(trial.rename_to(target));
  return TemporaryFolder::create(target);
}

// Locks the folder, so that no other command replaces it at the same time. On a file system without
// locks, or one that cannot exchange two folders, others are not kept out. The lock is on the
// folder itself, so that it leaves no file.
Result<Descriptor> lock_to_replace(const std::string& folder) {
  VOLTA_TRY(Descriptor fd, open_file(folder, O_RDONLY | O_DIRECTORY, "open folder"));
  VOLTA_TRY(const LockAttempt attempt, try_lock(fd.get(), folder));
  struct stat held = {}, named = {};
  const bool same = ::fstat(fd.get(), &held) == 0 && ::stat(folder.c_str(), &named) == 0 &&
                    held.st_dev == named.st_dev && held.st_ino == named.st_ino;
  if (attempt == LockAttempt::kHeldByOther || !same) {
    return fail(ErrorCode::kIo,
                fmt::format("another command is replacing '{}': wait for it to end, or name "
                            "another folder",
                            folder));
  }
  return fd;
}

// Whether something exists under the name that must not be replaced. All links count.
bool name_is_taken(const std::string& path) { return path_exists(path) || is_link(path); }

// Every folder that holds a model has one of these files.
constexpr std::array<std::string_view, 3> kModelFiles = {"config.json", "model.safetensors",
                                                         "model.safetensors.index.json"};

// Files of the old model that Volta would read if the new model has no such file.
constexpr std::array<std::string_view, 6> kModelSettings = {
    "generation_config.json",  "tokenizer.json",      "tokenizer_config.json",
    "special_tokens_map.json", "chat_template.jinja", "chat_template.json"};

// The folder that a path leads to, or the path itself if nothing exists there yet. First completes
// a replacement of the folder that was interrupted by a kill.
Result<std::string> target_of(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const bool link = is_link(path);
  if (!link && !path.empty()) VOLTA_TRY(recover_folder(path));
  if (!name_is_taken(path)) return path;
  if (!path_exists(path)) {
    return fail(
        ErrorCode::kIo,
        fmt::format("'{}' is a symbolic link that leads nowhere; remove it, or name another "
                    "folder",
                    path));
  }
  VOLTA_TRY(create_directories(path));  // Fails if the path is not a folder.
  VOLTA_TRY(std::string target, real_path(path));
  if (link) VOLTA_TRY(recover_folder(target));
  return target;
}

// Follows the links of a path. Returns the name of the first file or link on the way that is in
// `folder`; "" if none is.
Result<std::string> name_passed_in(const std::string& folder, std::string path) {
  while (!is_same_place(parent_path(path), folder)) {
    if (!is_link(path)) return std::string();
    VOLTA_TRY(const std::string target, read_link(path));
    path = join_path(parent_path(path), target);
  }
  return file_name(path);
}

// Whether `path` or a folder above it will be removed or renamed by the next command on `to`.
// `target` is `to` with its links resolved.
Status check_place_stays(const std::string& path, const std::string& target,
                         const std::string& to) {
  for (std::string place = path; place != "/"; place = parent_path(place)) {
    const std::string folder = parent_path(place);
    const bool beside =
        is_same_place(folder, parent_path(target)) && is_left_of(place, file_name(target));
    const bool inside = is_same_place(folder, target) && is_temporary_name(file_name(place));
    if (!beside && !inside) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' was left by a command on '{}' that was cut short, and the next "
                            "one on it removes or renames it; to read it, give it another name "
                            "first (mv), or name another --out",
                            place, to));
  }
  return {};
}

}  // namespace

Result<NewFolder> NewFolder::create(const std::string& path, bool replace) {
  VOLTA_TRY(const std::string target, target_of(path));
  if (!path_exists(target)) {
    VOLTA_TRY(TemporaryFolder temporary, TemporaryFolder::create(target));
    return NewFolder(std::move(temporary), target, Way::kRename);
  }
  remove_abandoned_temporaries(target, file_name(target));
  VOLTA_TRY(const auto names, list_directory(target));
  if (names.empty()) return create_for_empty(target);
  if (replace) return create_in_place_of(target);
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("folder '{}' is not empty; name another folder, or use --force to "
                          "replace the model in it",
                          path));
}

Result<NewFolder> NewFolder::create_for_empty(const std::string& target) {
  const auto started_here = holds_current_folder(target);  // An error: in a folder that is gone.
  if (!started_here || !*started_here) {
    if (auto beside = create_to_replace(target)) {
      return NewFolder(*std::move(beside), target, Way::kRename);
    }
  }
  VOLTA_TRY(TemporaryFolder inside, TemporaryFolder::create(join_path(target, file_name(target))));
  return NewFolder(std::move(inside), target, Way::kMoveInside);
}

Result<NewFolder> NewFolder::create_in_place_of(const std::string& target) {
  if (path_exists(join_path(target, "model.safetensors.index.json"))) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' holds a model in several files; remove it, or name another folder",
                    target));
  }
  VOLTA_TRY(Descriptor lock, lock_to_replace(target));
  remove_abandoned_temporaries(target);  // Otherwise they would be kept with the other files.
  VOLTA_TRY(check_replaceable_folder(target));
  VOLTA_TRY(TemporaryFolder temporary, TemporaryFolder::create(target));
  return NewFolder(std::move(temporary), target, Way::kReplace, std::move(lock));
}

Status NewFolder::publish() {
  switch (way_) {
    case Way::kRename:
      return temporary_.rename_to(target_);
    case Way::kMoveInside:
      VOLTA_TRY(move_inside());
      return fsync_renamed(join_path(target_, "config.json"));
    case Way::kReplace:
      VOLTA_TRY(replace_folder(temporary_.path(), target_, kModelSettings));
      temporary_.release();  // If the old folder could not be removed, it now has this name.
      return {};
  }
  return {};
}

Status NewFolder::move_inside() {
  VOLTA_TRY(auto names, list_directory(temporary_.path()));
  if (std::erase(names, "config.json") > 0) names.emplace_back("config.json");  // It comes last.
  std::vector<std::string> moved;
  const auto move = [&](const std::string& name) -> Status {
    // config.json comes when all other files are durable.
    if (name == "config.json") VOLTA_TRY(fsync_directory(target_));
    std::string path = join_path(target_, name);
    VOLTA_TRY(rename_without_fsync(join_path(temporary_.path(), name), path, Existing::kKeep));
    moved.push_back(std::move(path));
    return {};
  };
  for (const std::string& name : names) {
    Status done = move(name);
    if (done) continue;
    for (const std::string& path : moved) {
      [[maybe_unused]] const Status removed = remove_all(path);  // The first error is reported.
    }
    return done;
  }
  return {};
}

Status check_new_folder(const std::string& path, bool replace) {
  VOLTA_TRY(const NewFolder place, NewFolder::create(path, replace));
  return {};
}

Status check_source_stays(const std::string& from, const std::string& to) {
  if (!path_exists(from)) return {};  // Reading it reports the error.
  VOLTA_TRY(const std::string source, real_path(from));
  std::string target = to;
  if (path_exists(to)) {
    VOLTA_TRY(target, real_path(to));
  }
  VOLTA_TRY(check_place_stays(source, target, to));
  if (!is_directory(source)) return {};
  VOLTA_TRY(const auto names, list_directory(source));
  for (const std::string& name : names) {
    const auto file = real_path(join_path(source, name));  // It may be a link out of the folder.
    if (file) VOLTA_TRY(check_place_stays(*file, target, to));
  }
  return {};
}

Status check_gives_way(const std::string& to, const std::string& from) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' {}", to, why));
  };
  if (is_same_place(to, from)) {
    return refuse("is the model that is read, which would be lost; name another folder");
  }
  if (!is_directory(to)) return {};
  VOLTA_TRY(const auto names, list_directory(to));
  // Remains of killed processes will be removed, which leaves an empty folder.
  if (std::ranges::all_of(names, is_temporary_name)) return {};
  if (std::ranges::none_of(
          kModelFiles, [&](std::string_view name) { return path_exists(join_path(to, name)); })) {
    return refuse("holds no model to replace; name a new or empty folder");
  }
  VOLTA_TRY(const auto files, open_weight_files(from));
  for (const SafetensorsFile& file : files) {
    VOLTA_TRY(const std::string name, name_passed_in(to, file.path()));
    if (name.empty()) continue;
    return refuse(
        fmt::format("holds '{}', weights of the model that is read, which would be lost; "
                    "name another folder",
                    name));
  }
  return {};
}

}  // namespace volta
