// Open file descriptors and the system calls on them, all made through FileOps. For the files of
// base that read, write and lock; knows no format.
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
  /// Closes now and tells how it went; `path` is for the message.
  Status close(const std::string& path);

 private:
  int fd_ = -1;
};

/// Opens a file; `action` ("open", "create") is for the message. A new one has the rights that the
/// umask leaves.
Result<Descriptor> open_file(const std::string& path, int flags, std::string_view action);

/// The same for a file that is to be changed in place: kInvalidFile for a symbolic link, for what
/// is no regular file, and for a file that has a second name (a hard link), since the change would
/// reach a file outside the folder that was named.
Result<Descriptor> open_to_change(const std::string& path, int flags, std::string_view action);

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path);
Status fsync_file(int fd, const std::string& path);
/// Has a range of a file written to the disk, so that a later fsync has less to do; it is no
/// replacement for that fsync. begin_write_back() does not wait for the disk, finish_write_back()
/// does. Nothing happens on a file system that cannot do this. kIo when the disk fails or is full.
Status begin_write_back(int fd, std::int64_t offset, std::int64_t bytes, const std::string& path);
Status finish_write_back(int fd, std::int64_t offset, std::int64_t bytes, const std::string& path);
/// Fills `buffer` or stops at the end of the file; returns the bytes read.
Result<std::int64_t> read_up_to(int fd, std::span<std::byte> buffer, const std::string& path);

/// How an attempt to lock a file ended.
enum class LockAttempt {
  kLocked,
  kHeldByOther,
  kNoLocks,  ///< The file system cannot lock (some network file systems); errno says why.
};
/// An exclusive flock, without waiting for it. It lasts until every copy of the descriptor is
/// closed. kIo, naming `path`, for failures of other kinds.
Result<LockAttempt> try_lock(int fd, const std::string& path);

}  // namespace volta
