// A file system that fails on demand: hand a FaultyFileOps to a ScopedFileOps and say which call is
// to fail and how.
//   FaultyFileOps faults;
//   faults.fail(FileCall::kWrite, 2, ENOSPC);  // The second write, and every one after it.
//   const ScopedFileOps scope(faults);
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <span>
#include <string>

#include "base/file.h"

namespace volta::test {

enum class FileCall {
  kOpen,
  kRead,
  kWrite,
  kFsync,
  kFtruncate,
  kFlock,
  kClose,
  kRename,
  kUnlink,
  kMkdir,
  kRmdir,
  kExchange,
  kLink,
  kSyncRange,
  kRenameNew
};

/// Counts calls by kind; makes the chosen ones fail with an errno instead of happening (a failing
/// close does close, as in Linux). For use by one thread.
class FaultyFileOps : public FileOps {
 public:
  /// Calls number `first` to `first + times - 1` (from 1) of this kind fail.
  void fail(FileCall call, int first, int error_number, int times = INT_MAX) {
    fault(call) = {first, times, error_number};
  }
  /// Writes take, and reads give, at most this many bytes a call.
  void limit_transfers(size_t bytes) { max_transfer_ = bytes; }
  /// Reads find the file's end at once.
  void end_reads_early() { max_transfer_ = 0; }
  int calls(FileCall call) const { return calls_.at(static_cast<size_t>(call)); }

  int open(const std::string& path, int flags, mode_t mode) override {
    return fails(FileCall::kOpen) ? -1 : FileOps::open(path, flags, mode);
  }
  ssize_t read(int fd, std::span<std::byte> buffer) override {
    if (fails(FileCall::kRead)) return -1;
    return FileOps::read(fd, buffer.first(std::min(buffer.size(), max_transfer_)));
  }
  ssize_t write(int fd, std::span<const std::byte> bytes) override {
    if (fails(FileCall::kWrite)) return -1;
    return FileOps::write(fd, bytes.first(std::min(bytes.size(), max_transfer_)));
  }
  int fsync(int fd) override { return fails(FileCall::kFsync) ? -1 : FileOps::fsync(fd); }
  int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags) override {
    return fails(FileCall::kSyncRange) ? -1 : FileOps::sync_file_range(fd, offset, bytes, flags);
  }
  int ftruncate(int fd, off_t size) override {
    return fails(FileCall::kFtruncate) ? -1 : FileOps::ftruncate(fd, size);
  }
  int flock(int fd, int operation) override {
    return fails(FileCall::kFlock) ? -1 : FileOps::flock(fd, operation);
  }
  int close(int fd) override {
    const int result = FileOps::close(fd);
    return fails(FileCall::kClose) ? -1 : result;
  }
  int rename(const std::string& from, const std::string& to) override {
    return fails(FileCall::kRename) ? -1 : FileOps::rename(from, to);
  }
  int rename_new(const std::string& from, const std::string& to) override {
    return fails(FileCall::kRenameNew) ? -1 : FileOps::rename_new(from, to);
  }
  int exchange(const std::string& a, const std::string& b) override {
    return fails(FileCall::kExchange) ? -1 : FileOps::exchange(a, b);
  }
  int link(const std::string& from, const std::string& to) override {
    return fails(FileCall::kLink) ? -1 : FileOps::link(from, to);
  }
  int unlink(const std::string& path) override {
    return fails(FileCall::kUnlink) ? -1 : FileOps::unlink(path);
  }
  int mkdir(const std::string& path, mode_t mode) override {
    return fails(FileCall::kMkdir) ? -1 : FileOps::mkdir(path, mode);
  }
  int rmdir(const std::string& path) override {
    return fails(FileCall::kRmdir) ? -1 : FileOps::rmdir(path);
  }

 private:
  struct Fault {
    int first = INT_MAX;
    int times = 0;
    int error_number = 0;
  };

  Fault& fault(FileCall call) { return faults_.at(static_cast<size_t>(call)); }

  bool fails(FileCall call) {
    const int number = ++calls_.at(static_cast<size_t>(call));
    const Fault& f = fault(call);
    if (number < f.first || number - f.first >= f.times) return false;
    errno = f.error_number;
    return true;
  }

  std::array<Fault, 15> faults_;
  std::array<int, 15> calls_{};
  size_t max_transfer_ = static_cast<size_t>(-1);
};

}  // namespace volta::test
