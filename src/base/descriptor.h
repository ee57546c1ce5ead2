// Open file descriptors and the system calls on them, which all go through FileOps. For the parts
// of base that read, write and lock files; knows no file format.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/file_ops.h"
#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// An open descriptor, closed when it goes out of scope. Move-only; empty by default.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int get() const { return fd_; }
  /// Gives up ownership.
  int release() { return std::exchange(fd_, -1); }
  /// Closes the descriptor and returns an error if that fails; `path` is for the message.
  Status close(const std::string& path);

 private:
  int fd_ = -1;
};

/// Opens a file; `action` ("open", "create") is for the message. A new file gets the permissions
/// 0666 minus the umask.
Result<Descriptor> open_file(const std::string& path, int flags, std::string_view action);

/// The same for a file that will be changed in place. kInvalidFile for a symbolic link, for
/// anything but a regular file, and for a file with a second name (a hard link), because the change
/// could affect a file outside the folder of `path`.
Result<Descriptor> open_to_change(const std::string& path, int flags, std::string_view action);

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path);
Status fsync_file(int fd, const std::string& path);
/// Write a range of a file to the disk, so that a later fsync has less to do. They do not replace
/// that fsync. begin_write_back() does not wait for the disk, finish_write_back() does. They do
/// nothing on a file system without support for this. kIo if the disk fails or is full.
Status begin_write_back(int fd, std::int64_t offset, std::int64_t bytes, const std::string& path);
Status finish_write_back(int fd, std::int64_t offset, std::int64_t bytes, const std::string& path);
/// Reads until `buffer` is full or the file ends; returns the number of bytes read.
Result<std::int64_t> read_up_to(int fd, std::span<std::byte> buffer, const std::string& path);

/// The result of an attempt to lock a file.
enum class LockAttempt {
  kLocked,
  kHeldByOther,
  kNoLocks,  ///< The file system has no locks (some network file systems); errno has the reason.
};
/// Tries to take an exclusive flock without waiting. The lock is held until every copy of the
/// descriptor is closed. Other failures are errors whose message names `path`, usually kIo.
Result<LockAttempt> try_lock(int fd, const std::string& path);

}  // namespace volta
