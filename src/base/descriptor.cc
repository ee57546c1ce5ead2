#include "base/descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/system_error.h"

namespace volta {
namespace {

constexpr mode_t kFileMode = 0666;  // Minus the umask.

std::unexpected<Error> refuse_to_change(const std::string& path, std::string_view what) {
  return fail(ErrorCode::kInvalidFile, fmt::format("will not write to '{}': {}", path, what));
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) file_ops().close(fd_);
}

// An interrupted close is not repeated, because Linux has already closed the descriptor.
Status Descriptor::close(const std::string& path) {
  if (file_ops().close(release()) != 0 && errno != EINTR) return fail_system("close", path, errno);
  return {};
}

Result<Descriptor> open_file(const std::string& path, int flags, std::string_view action) {
  const int fd =
      retry_interrupted([&] { return file_ops().open(path, flags | O_CLOEXEC, kFileMode); });
  if (fd >= 0) return Descriptor(fd);
  const bool creates = (flags & O_CREAT) != 0;
  return creates ? fail_to_write(action, path, errno) : fail_system(action, path, errno);
}

Result<Descriptor> open_to_change(const std::string& path, int flags, std::string_view action) {
  // O_NOFOLLOW rejects links and O_WRONLY folders, but this check gives a message with a remedy.
  // O_NONBLOCK prevents waiting for the other end of a named pipe.
  constexpr std::string_view kNoFile = "it is not a regular file; remove it";
  struct stat info = {};
  const bool there = lstat(path.c_str(), &info) == 0;
  if (there && S_ISLNK(info.st_mode)) {
    return refuse_to_change(path, "it is a symbolic link; remove it, if you did not make it");
  }
  if (there && !S_ISREG(info.st_mode)) return refuse_to_change(path, kNoFile);
  VOLTA_TRY(Descriptor fd, open_file(path, flags | O_NOFOLLOW | O_NONBLOCK, action));
  if (fstat(fd.get(), &info) != 0) return fail_system("examine", path, errno);
  if (!S_ISREG(info.st_mode)) return refuse_to_change(path, kNoFile);
  if (info.st_nlink > 1) {
    return refuse_to_change(path,
                            "it has a second name (a hard link), whose content would change, "
                            "too; replace it by a copy");
  }
  return fd;
}

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = retry_interrupted([&] { return file_ops().write(fd, bytes); });
    if (n < 0) return fail_system("write", path, errno);
    if (n == 0) return fail_system("write", path, EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Status fsync_file(int fd, const std::string& path) {
  if (retry_interrupted([&] { return file_ops().fsync(fd); }) != 0) {
    return fail_system("flush to disk", path, errno);
  }
  return {};
}

namespace {

Status write_back(int fd, std::int64_t offset, std::int64_t bytes, unsigned flags,
                  const std::string& path) {
  const auto call = [&] { return file_ops().sync_file_range(fd, offset, bytes, flags); };
  if (retry_interrupted(call) == 0) return {};
  if (errno == ENOSYS || errno == EINVAL || errno == ESPIPE || errno == EOPNOTSUPP) return {};
  return fail_system("flush to disk", path, errno);  // The system reports the error only once.
}

}  // namespace

Status begin_write_back(int fd, std::int64_t offset, std::int64_t bytes, const std::string& path) {
  return write_back(fd, offset, bytes, SYNC_FILE_RANGE_WRITE, path);
}

Status finish_write_back(int fd, std::int64_t offset, std::int64_t bytes, const std::string& path) {
  constexpr unsigned kWaitForAll =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  return write_back(fd, offset, bytes, kWaitForAll, path);
}

Result<std::int64_t> read_up_to(int fd, std::span<std::byte> buffer, const std::string& path) {
  std::int64_t total = 0;
  while (!buffer.empty()) {
    const ssize_t n = retry_interrupted([&] { return file_ops().read(fd, buffer); });
    if (n < 0) return fail_system("read", path, errno);
    if (n == 0) break;
    buffer = buffer.subspan(static_cast<std::size_t>(n));
    total += n;
  }
  return total;
}

Result<LockAttempt> try_lock(int fd, const std::string& path) {
  if (retry_interrupted([&] { return file_ops().flock(fd, LOCK_EX | LOCK_NB); }) == 0) {
    return LockAttempt::kLocked;
  }
  switch (errno) {
    case EWOULDBLOCK:
      return LockAttempt::kHeldByOther;
    case ENOSYS:
    case EOPNOTSUPP:
    case ENOLCK:
    case EBADF:  // For folders on NFS.
      return LockAttempt::kNoLocks;
    default:
      return fail_system("lock", path, errno);
  }
}

}  // namespace volta
