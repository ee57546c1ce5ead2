#include "io/new_folder.h"

#include <fmt/format.h>

#include <vector>

#include "base/file.h"

namespace volta {
namespace {

// A folder beside `target`, an empty one, that can take its place: tried with another one first.
Result<TemporaryFolder> create_to_replace(const std::string& target) {
  VOLTA_TRY(TemporaryFolder trial, TemporaryFolder::create(target));
  VOLTA_TRY(trial.rename_to(target));
  return TemporaryFolder::create(target);
}

// For something that must not be replaced; links count, wherever they lead.
bool name_is_taken(const std::string& path) { return path_exists(path) || is_link(path); }

}  // namespace

Result<NewFolder> NewFolder::create(const std::string& path) {
  if (!name_is_taken(path)) {
    VOLTA_TRY(TemporaryFolder temporary, TemporaryFolder::create(path));
    return NewFolder(std::move(temporary), path, false);
  }
  if (!path_exists(path)) {
    return fail(
        ErrorCode::kIo,
        fmt::format("'{}' is a symbolic link that leads nowhere; remove it, or name another "
                    "folder",
                    path));
  }
  VOLTA_TRY(create_directories(path));  // Refuses what is no folder.
  VOLTA_TRY(const std::string target, real_path(path));
  const std::string inner = join_path(target, file_name(target));
  remove_abandoned_temporaries(target, file_name(target));
  VOLTA_TRY(const auto names, list_directory(target));
  if (!names.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("folder '{}' is not empty; name a new one, or remove what is in it", path));
  }
  if (auto beside = create_to_replace(target)) {
    return NewFolder(*std::move(beside), target, false);
  }
  VOLTA_TRY(TemporaryFolder inside, TemporaryFolder::create(inner));
  return NewFolder(std::move(inside), target, true);
}

Status NewFolder::publish() {
  if (!inside_) return temporary_.rename_to(target_);
  VOLTA_TRY(move_inside());
  return fsync_renamed(join_path(target_, "config.json"));
}

Status NewFolder::move_inside() {
  VOLTA_TRY(auto names, list_directory(temporary_.path()));
  if (std::erase(names, "config.json") > 0) names.emplace_back("config.json");  // The last one.
  std::vector<std::string> moved;
  const auto move = [&](const std::string& name) -> Status {
    std::string path = join_path(target_, name);
    if (name_is_taken(path)) {
      return fail(ErrorCode::kIo, fmt::format("'{}' was made by somebody else meanwhile", path));
    }
    VOLTA_TRY(rename_path(join_path(temporary_.path(), name), path));
    moved.push_back(std::move(path));
    return {};
  };
  for (const std::string& name : names) {
    Status done = move(name);
    if (done) continue;
    for (const std::string& path : moved) {
      [[maybe_unused]] const Status removed = remove_all(path);  // The first error is to be told.
    }
    return done;
  }
  return {};
}

Status check_new_folder(const std::string& path) {
  VOLTA_TRY(const NewFolder place, NewFolder::create(path));
  return {};
}

}  // namespace volta
