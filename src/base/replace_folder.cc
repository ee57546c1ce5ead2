#include "base/replace_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/system_error.h"
#include "base/temporary.h"

namespace volta {
namespace {

// A file in a folder that is being replaced. It has the identity of the replacement. The old folder
// may be removed only if the replacement is in its place.
constexpr std::int64_t kMaxMarkBytes = 256;
// Suffix of the old folder's name during a replacement on file systems that cannot exchange
// folders.
constexpr std::string_view kAside = ".replaced";

bool is_there(const std::string& path) {
  struct stat info = {};
  return ::lstat(path.c_str(), &info) == 0;
}

// Whether the path is a folder that this user owns, and not a symbolic link to one.
bool is_own_folder(const std::string& path) {
  struct stat info = {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

// Identifies a folder, so that another folder created later under the same name can be told apart:
// device, inode number and creation time. File systems reuse inode numbers, hence the creation
// time; it is 0 where the file system does not record it.
Result<std::string> identity(const std::string& path) {
  struct statx info = {};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME,
              &info) != 0) {
    return fail_system("examine", path, errno);
  }
  return fmt::format("{}:{} {} {}.{:09}\n", info.stx_dev_major, info.stx_dev_minor, info.stx_ino,
                     info.stx_btime.tv_sec, info.stx_btime.tv_nsec);
}

// Whether `folder` is the one that replaced `marked`, according to the mark in `marked`.
bool is_replaced_by(const std::string& marked, const std::string& folder) {
  const auto wanted = read_text_file(join_path(marked, kReplacedMark), kMaxMarkBytes);
  const auto there = identity(folder);
  return wanted && there && *wanted == *there;
}

Status copy_mode(const std::string& from, const std::string& to) {
  struct stat info = {};
  if (::stat(from.c_str(), &info) != 0) return fail_system("examine", from, errno);
  if (::chmod(to.c_str(), info.st_mode & 07777) != 0) return fail_to_write("change", to, errno);
  return {};
}

// Gives a file a second name. For a folder, makes a new folder and gives its files second names in
// it.
Status link_tree(const std::string& from, const std::string& to) {
  struct stat info = {};
  if (::lstat(from.c_str(), &info) != 0) return fail_system("examine", from, errno);
  if (!S_ISDIR(info.st_mode)) {
    if (file_ops().link(from, to) == 0) return {};
    return std::unexpected(
        fail_to_write("link", to, errno)
            .error()
            .with_context(fmt::format("'{}' cannot be kept in the folder's replacement; name "
                                      "another folder, or move it elsewhere first",
                                      from)));
  }
  if (file_ops().mkdir(to, S_IRWXU) != 0) return fail_to_write("create folder", to, errno);
  VOLTA_TRY(const auto names, list_directory(from));
  for (const std::string& name : names) {
    VOLTA_TRY(link_tree(join_path(from, name), join_path(to, name)));
  }
  VOLTA_TRY(fsync_directory(to));
  return copy_mode(from, to);
}

// The first of "NAME.old", "NAME.old.2" and so on that is in neither folder.
std::string free_name(const std::string& name, const std::string& fresh,
                      const std::string& folder) {
  std::string free = name + ".old";
  for (int i = 2; is_there(join_path(fresh, free)) || is_there(join_path(folder, free)); ++i) {
    free = fmt::format("{}.old.{}", name, i);
  }
  return free;
}

Status carry_over(const std::string& folder, const std::string& fresh,
                  std::span<const std::string_view> outdated) {
  VOLTA_TRY(const auto names, list_directory(folder));
  for (const std::string& name : names) {
    if (name == kReplacedMark) continue;
    const std::string ours = join_path(fresh, name);
    if (is_there(ours)) {
      const std::string theirs = join_path(folder, name);
      if (is_link(theirs) || !is_directory(theirs)) continue;  // A file that is replaced.
      if (is_directory(ours)) continue;                        // From an earlier attempt.
      return fail(ErrorCode::kIo, fmt::format("cannot replace '{}': it is a folder; rename it, or "
                                              "name another place for the model",
                                              theirs));
    }
    const bool old = std::ranges::find(outdated, name) != outdated.end();
    const std::string to = old ? free_name(name, fresh, folder) : name;
    VOLTA_TRY(link_tree(join_path(folder, name), join_path(fresh, to)));
  }
  return fsync_directory(fresh);
}

// For file systems that cannot exchange folders. Returns the new path of the old folder.
Result<std::string> replace_in_two_steps(const std::string& fresh, const std::string& folder) {
  std::string aside = folder + std::string(kAside);
  if (file_ops().rename(folder, aside) != 0) return fail_to_write("rename", folder, errno);
  if (file_ops().rename(fresh, folder) == 0) return aside;
  auto failed = fail_to_write("rename", fresh, errno);
  if (file_ops().rename(aside, folder) == 0) return failed;
  return std::unexpected(std::move(failed).error().with_context(
      fmt::format("'{}' is now '{}'; rename it back", folder, aside)));
}

// Puts `fresh` in place of `folder`. Returns the new path of the old folder.
Result<std::string> swap_folders(const std::string& fresh, const std::string& folder) {
  if (file_ops().exchange(fresh, folder) == 0) return fresh;
  if (errno == ENOSYS || errno == EINVAL || errno == ENOTSUP || errno == EXDEV) {
    return replace_in_two_steps(fresh, folder);
  }
  return fail_to_write("replace", folder, errno);
}

// Removes the old folder after its replacement. It first gets a temporary name and loses the mark,
// so that it counts as abandoned. If this process is then killed before everything is removed, the
// next process that writes `folder` removes the rest, and never takes it for a complete model.
Status remove_replaced(const std::string& path, const std::string& folder) {
  std::string retired = path;
  if (!is_temporary_name(file_name(path))) {
    retired = retired_path(folder);
    if (file_ops().rename(path, retired) != 0) {
      return errno == ENOENT ? Status() : fail_to_write("rename", path, errno);
    }
  }
  Status removed = remove_all(join_path(retired, kReplacedMark));
  if (removed) removed = remove_all(retired);
  // Another command on the same folder may be removing it at the same time.
  if (!removed && removed.error().code() == ErrorCode::kNotFound) return {};
  return removed;
}

}  // namespace

Result<bool> holds_current_folder(const std::string& folder) {
  VOLTA_TRY(const std::string here, real_path("."));
  return here == folder || here.starts_with(folder + "/");
}

Status check_replaceable_folder(const std::string& folder) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' {}", folder, why));
  };
  if (is_mount_point(folder)) {
    return refuse("is a mount point, which cannot be replaced as a whole; name a folder in it");
  }
  VOLTA_TRY(const bool started_here, holds_current_folder(folder));
  if (started_here) {
    return refuse(
        "is replaced as a whole, and this command was started in it; start it in another folder");
  }
  VOLTA_TRY(const TemporaryFolder trial, TemporaryFolder::create(folder));
  return carry_over(folder, trial.path(), {});
}

Status replace_folder(const std::string& fresh, const std::string& folder,
                      std::span<const std::string_view> outdated) {
  VOLTA_TRY(carry_over(folder, fresh, outdated));
  VOLTA_TRY(copy_mode(folder, fresh));
  VOLTA_TRY(const std::string successor, identity(fresh));
  const std::string mark = join_path(folder, kReplacedMark);
  const Status marked = write_file_atomic(mark, successor);
  Result<std::string> old = marked ? swap_folders(fresh, folder) : std::unexpected(marked.error());
  if (!old) {
    const Status removed = remove_all(mark);  // Only the first error is reported.
    static_cast<void>(removed);
    return std::unexpected(std::move(old).error());
  }
  // The old folder is removed when its replacement is durable.
  Status tidied = fsync_directory(parent_path(folder));
  if (tidied) tidied = remove_replaced(*old, folder);
  if (!tidied) {
    log(LogLevel::kWarning, fmt::format("'{}' is complete, but what it replaced is still there: {}",
                                        folder, tidied.error().message()));
  }
  return {};
}

bool is_left_of(const std::string& path, std::string_view folder_name) {
  const std::string name = file_name(path);
  if (!name.starts_with(folder_name)) return false;
  const std::string_view rest = std::string_view(name).substr(folder_name.size());
  if (rest == kAside) return is_there(join_path(path, kReplacedMark));
  return rest.starts_with('.') && is_temporary_name(name);
}

Status recover_folder(const std::string& folder) {
  const std::string parent = parent_path(folder);
  const std::string own = file_name(folder);
  const auto names = list_directory(parent);
  if (!names) return {};  // Nothing can be found there; this is no error.
  for (const std::string& name : *names) {
    const std::string path = join_path(parent, name);
    if (!is_left_of(path, own) || !is_own_folder(path) ||
        !is_there(join_path(path, kReplacedMark))) {
      continue;
    }
    if (!is_there(folder)) {
      VOLTA_TRY(rename_path(path, folder));
    } else if (is_replaced_by(path, folder)) {
      VOLTA_TRY(remove_replaced(path, folder));
    } else {
      log(LogLevel::kWarning,
          fmt::format("'{}' is what '{}' was before a replacement that was cut short; what has the "
                      "name now came from elsewhere, so both stay: remove or rename '{}'",
                      path, folder, path));
    }
  }
  remove_abandoned_temporaries(folder, kReplacedMark);
  const std::string mark = join_path(folder, kReplacedMark);
  return is_own_folder(folder) && is_there(mark) ? remove_all(mark) : Status();
}

}  // namespace volta
