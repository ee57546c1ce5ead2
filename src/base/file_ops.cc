#include "base/file_ops.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace volta {

int FileOps::open(const std::string& path, int flags, mode_t mode) {
  return ::open(path.c_str(), flags, mode);
}
ssize_t FileOps::read(int fd, std::span<std::byte> buffer) {
  return ::read(fd, buffer.data(), buffer.size());
}
ssize_t FileOps::write(int fd, std::span<const std::byte> bytes) {
  return ::write(fd, bytes.data(), bytes.size());
}
int FileOps::fsync(int fd) { return ::fsync(fd); }
int FileOps::sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags) {
  return ::sync_file_range(fd, offset, bytes, flags);
}
int FileOps::ftruncate(int fd, off_t size) { return ::ftruncate(fd, size); }
int FileOps::flock(int fd, int operation) { return ::flock(fd, operation); }
int FileOps::close(int fd) { return ::close(fd); }
int FileOps::rename(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str());
}
int FileOps::rename_new(const std::string& from, const std::string& to) {
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
}
int FileOps::exchange(const std::string& a, const std::string& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
}
int FileOps::link(const std::string& from, const std::string& to) {
  return ::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), 0);
}
int FileOps::unlink(const std::string& path) { return ::unlink(path.c_str()); }
int FileOps::mkdir(const std::string& path, mode_t mode) { return ::mkdir(path.c_str(), mode); }
int FileOps::rmdir(const std::string& path) { return ::rmdir(path.c_str()); }
int FileOps::statvfs(const std::string& path, struct statvfs& info) {
  return ::statvfs(path.c_str(), &info);
}

namespace {

// The calling thread's replacement for the system calls; null except in tests that inject faults.
constinit thread_local FileOps* t_file_ops = nullptr;

}  // namespace

FileOps& file_ops() {
  static FileOps system;
  return t_file_ops != nullptr ? *t_file_ops : system;
}

ScopedFileOps::ScopedFileOps(FileOps& ops) : previous_(std::exchange(t_file_ops, &ops)) {}
ScopedFileOps::~ScopedFileOps() { t_file_ops = previous_; }

}  // namespace volta
