// The system calls that create, write and lock files, as an object that tests replace to inject
// faults.
#pragma once

#include <sys/statvfs.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>

namespace [[gnu::visibility("default")]] volta {

/// The permissions of new folders, minus the umask.
inline constexpr mode_t kFolderMode = 0777;

/// Each method behaves like the POSIX function of the same name (-1 and errno on failure). The
/// default implementation makes the system call.
class FileOps {
 public:
  FileOps() = default;
  FileOps(const FileOps&) = delete;
  FileOps& operator=(const FileOps&) = delete;
  virtual ~FileOps() = default;

  virtual int open(const std::string& path, int flags, mode_t mode);
  virtual ssize_t read(int fd, std::span<std::byte> buffer);
  virtual ssize_t write(int fd, std::span<const std::byte> bytes);
  virtual int fsync(int fd);
  virtual int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags);
  virtual int ftruncate(int fd, off_t size);
  virtual int flock(int fd, int operation);
  virtual int close(int fd);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int rename_new(const std::string& from, const std::string& to);  ///< RENAME_NOREPLACE
  virtual int exchange(const std::string& a, const std::string& b);        ///< RENAME_EXCHANGE
  virtual int link(const std::string& from, const std::string& to);  ///< Never follows `from`.
  virtual int unlink(const std::string& path);
  virtual int mkdir(const std::string& path, mode_t mode);
  virtual int rmdir(const std::string& path);
  virtual int statvfs(const std::string& path, struct statvfs& info);
};

/// Replaces the FileOps of the calling thread until it goes out of scope. It is for fault injection
/// in tests only.
class ScopedFileOps {
 public:
  explicit ScopedFileOps(FileOps& ops);
  ~ScopedFileOps();
  ScopedFileOps(const ScopedFileOps&) = delete;
  ScopedFileOps& operator=(const ScopedFileOps&) = delete;

 private:
  FileOps* previous_;
};

/// The FileOps of the calling thread.
FileOps& file_ops();

/// Repeats `call` while it fails because a signal interrupted it (EINTR).
template <typename Call>
auto retry_interrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace volta
