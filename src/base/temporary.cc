#include "base/temporary.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system_error.h"

namespace volta {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp-volta-";
constexpr std::size_t kDigits = 8;  // Of the random number and of the checksum, each.
constexpr int kTries = 100;

// The last digits of a temporary's name: a checksum of everything before them.
std::string checksum(std::string_view name_and_number) {
  return hex(hash64(name_and_number)).substr(kDigits);
}

// A number that other processes are very unlikely to choose. The caller must still check that no
// file has the name.
std::string random_digits() {
  struct Source {
    std::uint64_t random = 0;  // Stays 0 if the system has no random numbers.
    std::uint64_t count = 0;
    double time = 0;
    std::int64_t process = 0;
  };
  static std::atomic<std::uint64_t> count = 0;
  Source source{.count = ++count, .time = monotonic_seconds(), .process = ::getpid()};
  [[maybe_unused]] const auto filled =
      ::getrandom(&source.random, sizeof source.random, GRND_NONBLOCK);
  return hex(hash64(object_bytes(source))).substr(kDigits);
}

std::string temporary_path(const std::string& target) {
  const std::string name =
      fmt::format("{}{}{}", file_name(target), kTemporaryMark, random_digits());
  return join_path(parent_path(target), name + checksum(name));
}

// Locks a temporary that was just made. False if another process has taken it for abandoned before.
Result<bool> hold(int fd, const std::string& path) {
  VOLTA_TRY(const LockAttempt attempt, try_lock(fd, path));
  struct stat info = {};
  if (fstat(fd, &info) != 0) return fail_system("examine", path, errno);
  return attempt != LockAttempt::kHeldByOther && info.st_nlink > 0;
}

void remove_if_abandoned(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0 || info.st_uid != ::geteuid()) return;
  const bool folder = S_ISDIR(info.st_mode);
  if (!folder && !S_ISREG(info.st_mode)) return;
  if (folder && lstat(join_path(path, kReplacedMark).c_str(), &info) == 0) return;
  // Network file systems can lock a file only if it is open for writing. A folder cannot be opened
  // so.
  const int flags = O_NOFOLLOW | O_NONBLOCK | (folder ? O_RDONLY | O_DIRECTORY : O_RDWR);
  const auto fd = open_file(path, flags, "open");
  if (!fd) return;
  const auto attempt = try_lock(fd->get(), path);
  if (!attempt || *attempt != LockAttempt::kLocked) return;
  [[maybe_unused]] const Status removed = remove_all(path);
}

}  // namespace

bool is_temporary_name(std::string_view name) {
  if (name.size() <= kTemporaryMark.size() + 2 * kDigits) return false;
  const std::string_view before = name.substr(0, name.size() - kDigits);
  return before.substr(0, before.size() - kDigits).ends_with(kTemporaryMark) &&
         name.substr(before.size()) == checksum(before);
}

void remove_abandoned_temporaries(const std::string& directory, std::string_view target) {
  const auto names = list_directory(directory);
  if (!names) return;
  for (const std::string& name : *names) {
    if (!is_temporary_name(name)) continue;
    const std::string_view stem =
        std::string_view(name).substr(0, name.size() - kTemporaryMark.size() - 2 * kDigits);
    if (target.empty() || stem == target) remove_if_abandoned(join_path(directory, name));
  }
}

std::string retired_path(const std::string& target) {
  std::string path = temporary_path(target);
  for (int tries = 1; tries < kTries && path_exists(path); ++tries) path = temporary_path(target);
  return path;
}

Result<TemporaryFile> create_temporary_file(const std::string& target) {
  VOLTA_TRY(check_replaceable(target));
  remove_abandoned_temporaries(parent_path(target), file_name(target));
  for (int tries = 1;; ++tries) {
    std::string path = temporary_path(target);
    if (tries < kTries && path_exists(path)) continue;
    auto opened = open_file(path, O_RDWR | O_CREAT | O_EXCL, "create");
    struct stat folder = {};
    if (!opened && ::stat(parent_path(target).c_str(), &folder) != 0 && errno == ENOENT) {
      return fail(ErrorCode::kIo, fmt::format("cannot create '{}': there is no folder '{}'", target,
                                              parent_path(target)));
    }
    VOLTA_TRY(Descriptor fd, std::move(opened));
    auto held = hold(fd.get(), path);
    if (held && !*held) continue;
    // The lock is held by all copies of the descriptor, so this copy keeps it after the file is
    // closed.
    Descriptor lock(held ? ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0) : -1);
    if (held) return TemporaryFile{std::move(path), std::move(fd), std::move(lock)};
    file_ops().unlink(path);
    return std::unexpected(std::move(held).error());
  }
}

Result<TemporaryFolder> TemporaryFolder::create(const std::string& target) {
  const std::string name = file_name(target);
  if (name.empty() || name == "." || name == "..") {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' names no new folder", target));
  }
  const std::string parent = parent_path(target);
  VOLTA_TRY(create_directories(parent));
  remove_abandoned_temporaries(parent, name);
  for (int tries = 1;; ++tries) {
    const std::string path = temporary_path(target);
    if (file_ops().mkdir(path, kFolderMode) != 0) {
      if (errno == EEXIST && tries < kTries) continue;
      return fail_to_write("create folder", path, errno);
    }
    TemporaryFolder folder(path, {});  // Its destructor removes the folder on an error.
    auto opened = open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, "open folder");
    // Until the lock is held, another process can take the folder for abandoned and remove it.
    const bool removed = !opened && opened.error().code() == ErrorCode::kNotFound && tries < kTries;
    if (!removed) {
      VOLTA_TRY(folder.lock_, std::move(opened));
      VOLTA_TRY(const bool held, hold(folder.lock_.get(), path));
      if (held) return folder;
    }
    folder.path_.clear();
  }
}

TemporaryFolder& TemporaryFolder::operator=(TemporaryFolder&& other) noexcept {
  std::swap(path_, other.path_);
  lock_ = std::move(other.lock_);
  return *this;
}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  if (Status removed = remove_all(path_); !removed) {
    log(LogLevel::kWarning, removed.error().message());
  }
}

Status TemporaryFolder::rename_to(const std::string& target) {
  struct stat info = {};
  // A failure is ignored: permissions that cannot be copied are no reason to lose the folder.
  if (::stat(target.c_str(), &info) == 0) ::chmod(path_.c_str(), info.st_mode & 07777);
  if (file_ops().rename(path_, target) != 0) {
    if (errno == EEXIST || errno == ENOTEMPTY) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("'{}' was made by another program meanwhile, and stays as it is", target));
    }
    return fail_to_write(fmt::format("rename to '{}' the path", target), path_, errno);
  }
  path_.clear();
  return fsync_renamed(target);
}

}  // namespace volta
