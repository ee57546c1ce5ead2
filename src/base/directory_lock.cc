// DirectoryLock of base/file.h: an flock on a folder's `.lock`. This file may exist already, and is
// untrusted.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

namespace volta {
namespace {

constexpr std::size_t kMaxPidDigits = 20;

// The process id in a lock file; "" if the file is empty. kInvalidFile for any other content,
// because then this program did not make the file.
Result<std::string> read_pid(int fd, const std::string& path) {
  std::array<std::byte, kMaxPidDigits + 1> buffer{};
  VOLTA_TRY(const std::int64_t size, read_up_to(fd, buffer, path));
  std::string_view text = as_text(std::span(buffer).first(static_cast<std::size_t>(size)));
  if (text.ends_with('\n')) text.remove_suffix(1);
  const bool digits = text.find_first_not_of("0123456789") == std::string_view::npos;
  if (digits && text.size() <= kMaxPidDigits) return std::string(text);
  return fail(ErrorCode::kInvalidFile,
              fmt::format("'{}' is not a lock of Volta's (it holds more than the number of a "
                          "process): rename it, or choose another folder",
                          path));
}

// Writes the process id for people to read. The lock works without it, so a failure, such as a full
// disk, is only logged.
void write_pid(int fd, const std::string& path) {
  Status written;
  if (file_ops().ftruncate(fd, 0) == 0 && ::lseek(fd, 0, SEEK_SET) == 0) {
    written = write_all(fd, as_bytes(fmt::format("{}", ::getpid())), path);
  } else {
    written = fail(ErrorCode::kIo, std::generic_category().message(errno));
  }
  if (written) return;
  log(LogLevel::kWarning, fmt::format("'{}' does not say which process uses the folder: {}", path,
                                      written.error().message()));
}

// Whether the folder at `path` is the one that is open as `fd`.
bool is_folder(const std::string& path, int fd) {
  struct stat there = {}, open = {};
  return ::stat(path.c_str(), &there) == 0 && ::fstat(fd, &open) == 0 &&
         there.st_dev == open.st_dev && there.st_ino == open.st_ino;
}

}  // namespace

Result<DirectoryLock> DirectoryLock::acquire(const std::string& directory) {
  const std::string path = join_path(directory, kLockFile);
  VOLTA_TRY(Descriptor fd, open_to_change(path, O_RDWR | O_CREAT, "create"));
  VOLTA_TRY(const LockAttempt attempt, try_lock(fd.get(), path));
  const int lock_errno = errno;
  VOLTA_TRY(const std::string holder, read_pid(fd.get(), path));
  if (attempt == LockAttempt::kHeldByOther) {
    return fail(ErrorCode::kIo,
                fmt::format("folder '{}' is in use by process {}: wait for it to end, or choose "
                            "another folder",
                            directory, holder.empty() ? "unknown" : holder));
  }
  if (attempt == LockAttempt::kNoLocks) {
    log(LogLevel::kWarning,
        fmt::format("the file system of '{}' has no locks ({}): see to it yourself that no other "
                    "process writes to this folder",
                    directory, std::generic_category().message(lock_errno)));
  }
  write_pid(fd.get(), path);
  VOLTA_TRY(Descriptor folder, open_file(directory, O_RDONLY | O_DIRECTORY, "open"));
  return DirectoryLock(std::move(fd), std::move(folder), directory);
}

Result<std::string> DirectoryLock::place() const {
  if (is_folder(directory_, folder_.get())) return directory_;
  // Linux knows where the folder of an open descriptor is now.
  auto now = read_link(fmt::format("/proc/self/fd/{}", folder_.get()));
  if (now && is_folder(*now, folder_.get())) return now;
  struct stat open = {};
  const bool removed = (::fstat(folder_.get(), &open) == 0 && open.st_nlink == 0) ||
                       (now && now->ends_with(" (deleted)"));
  // Otherwise the path cannot be examined at the moment, as with a network that has failed.
  if (!removed && !path_exists(directory_)) return directory_;
  return fail(ErrorCode::kIo,
              fmt::format("the folder '{}' was removed while it was in use", directory_));
}

}  // namespace volta
