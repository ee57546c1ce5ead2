// Reading, atomic writing, locking and listing, on POSIX.
#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/system_error.h"
#include "base/text.h"

namespace volta {

// The default FileOps: the system calls themselves.

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
int FileOps::ftruncate(int fd, off_t size) { return ::ftruncate(fd, size); }
int FileOps::close(int fd) { return ::close(fd); }
int FileOps::rename(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str());
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

namespace {

constexpr size_t kWriterBufferBytes = size_t{256} << 10;
constexpr std::string_view kTemporaryMark = ".tmp-";  // NAME.tmp-PROCESS-NUMBER
constexpr int kTemporaryTries = 100;
constexpr mode_t kFileMode = 0666;    // Less the umask.
constexpr mode_t kFolderMode = 0777;  // Less the umask.

// The calling thread's replacement for the system; null but in tests of faults.
constinit thread_local FileOps* t_file_ops = nullptr;

}  // namespace

FileOps& file_ops() {
  static FileOps system;
  return t_file_ops != nullptr ? *t_file_ops : system;
}

namespace {

// Calls until the answer is not "interrupted by a signal".
template <typename Call>
auto retry_interrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// An open descriptor, closed when it goes out of scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) file_ops().close(fd_);
  }

  int get() const { return fd_; }
  // Gives up ownership.
  int release() { return std::exchange(fd_, -1); }
  // Closes now and tells how it went. Not retried when interrupted: Linux has closed it by then.
  Status close(const std::string& path) {
    if (file_ops().close(release()) != 0 && errno != EINTR)
      return fail_system("close", path, errno);
    return {};
  }

 private:
  int fd_;
};

Result<Descriptor> open_file(const std::string& path, int flags, std::string_view action) {
  const int fd =
      retry_interrupted([&] { return file_ops().open(path, flags | O_CLOEXEC, kFileMode); });
  if (fd >= 0) return Descriptor(fd);
  const bool creates = (flags & O_CREAT) != 0;
  return creates ? fail_to_write(action, path, errno) : fail_system(action, path, errno);
}

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = retry_interrupted([&] { return file_ops().write(fd, bytes); });
    if (n < 0) return fail_system("write", path, errno);
    if (n == 0) return fail_system("write", path, EIO);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status fsync_file(int fd, const std::string& path) {
  if (retry_interrupted([&] { return file_ops().fsync(fd); }) != 0) {
    return fail_system("flush to disk", path, errno);
  }
  return {};
}

// Fills `buffer` or stops at the end of the file; returns the bytes read.
Result<int64_t> read_up_to(int fd, std::span<std::byte> buffer, const std::string& path) {
  int64_t total = 0;
  while (!buffer.empty()) {
    const ssize_t n = retry_interrupted([&] { return file_ops().read(fd, buffer); });
    if (n < 0) return fail_system("read", path, errno);
    if (n == 0) break;
    buffer = buffer.subspan(static_cast<size_t>(n));
    total += n;
  }
  return total;
}

struct OpenedFile {
  Descriptor fd;
  int64_t size;
};

Result<int64_t> regular_file_size(const struct stat& info, const std::string& path) {
  if (S_ISREG(info.st_mode)) return int64_t{info.st_size};
  return fail(ErrorCode::kInvalidFile,
              fmt::format("'{}' is {}, not a regular file", path,
                          S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe"));
}

// Opens a regular file of at most max_bytes for reading. O_NONBLOCK: a named pipe must not hang us.
Result<OpenedFile> open_to_read(const std::string& path, int64_t max_bytes) {
  VOLTA_TRY(Descriptor fd, open_file(path, O_RDONLY | O_NONBLOCK, "open"));
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return fail_system("examine", path, errno);
  VOLTA_TRY(const int64_t size, regular_file_size(info, path));
  if (size > max_bytes) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("'{}' has {} bytes, more than the {} allowed", path, size, max_bytes));
  }
  return OpenedFile{std::move(fd), size};
}

// A name that this process has not used yet. Another one of the same number (in a container, or
// long dead) may have: whoever makes it must find nothing there, or try the next.
std::string next_temporary_name(std::string_view path) {
  static std::atomic<std::uint64_t> number = 0;
  return fmt::format("{}{}{}-{}", path, kTemporaryMark, getpid(), ++number);
}

struct TemporaryFile {
  std::string path;
  Descriptor fd;
};

// A new file that waits to become `target`.
Result<TemporaryFile> create_temporary_file(const std::string& target) {
  VOLTA_TRY(check_replaceable(target));
  for (int tries = 1;; ++tries) {
    std::string path = next_temporary_name(target);
    const bool taken = tries < kTemporaryTries && path_exists(path);
    if (taken) continue;
    VOLTA_TRY(Descriptor fd, open_file(path, O_WRONLY | O_CREAT | O_EXCL, "create"));
    return TemporaryFile{std::move(path), std::move(fd)};
  }
}

Status read_exactly(const OpenedFile& file, std::span<std::byte> buffer, const std::string& path) {
  VOLTA_TRY(const int64_t n, read_up_to(file.fd.get(), buffer, path));
  if (n == file.size) return {};
  return fail(ErrorCode::kIo, fmt::format("'{}' ended after {} of its {} bytes: was it changed "
                                          "while it was read?",
                                          path, n, file.size));
}

}  // namespace

ScopedFileOps::ScopedFileOps(FileOps& ops) : previous_(std::exchange(t_file_ops, &ops)) {}
ScopedFileOps::~ScopedFileOps() { t_file_ops = previous_; }

Result<HeapArray<std::byte>> read_binary_file(const std::string& path, int64_t max_bytes) {
  VOLTA_TRY(const OpenedFile file, open_to_read(path, max_bytes));
  VOLTA_TRY(auto bytes, try_make_array<std::byte>(file.size));
  VOLTA_TRY(read_exactly(file, bytes.span(), path));
  return bytes;
}

Result<std::string> read_text_file(const std::string& path, int64_t max_bytes) {
  VOLTA_TRY(const OpenedFile file, open_to_read(path, max_bytes));
  // A std::string cannot say that it does not fit, so a block of its size is tried first.
  if (auto probe = try_allocate(file.size); !probe) {
    return std::unexpected(std::move(probe).error().with_context(fmt::format("'{}'", path)));
  }
  std::string text(static_cast<size_t>(file.size), '\0');
  VOLTA_TRY(read_exactly(file, std::as_writable_bytes(std::span(text)), path));
  return text;
}

Result<std::optional<std::string>> read_text_file_if_there(const std::string& path,
                                                           int64_t max_bytes) {
  auto text = read_text_file(path, max_bytes);
  if (text) return *std::move(text);
  if (text.error().code() == ErrorCode::kNotFound) return std::nullopt;
  return std::unexpected(std::move(text).error());
}

bool is_temporary_name(std::string_view name) {
  const auto is_digits = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  const size_t mark = name.rfind(kTemporaryMark);
  if (mark == std::string_view::npos || mark == 0) return false;
  const std::string_view numbers = name.substr(mark + kTemporaryMark.size());
  const size_t dash = numbers.find('-');
  return dash != std::string_view::npos && is_digits(numbers.substr(0, dash)) &&
         is_digits(numbers.substr(dash + 1));
}

Status check_replaceable(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return {};
  const std::string_view kind = S_ISLNK(info.st_mode)   ? "a symbolic link"
                                : S_ISDIR(info.st_mode) ? "a folder"
                                                        : "a device or pipe";
  return fail(ErrorCode::kIo,
              fmt::format("cannot write '{}': it is {}; give the path of a file", path, kind));
}

Status write_file_atomic(const std::string& path, std::span<const std::byte> bytes) {
  VOLTA_TRY(TemporaryFile temporary, create_temporary_file(path));
  const auto write_and_rename = [&]() -> Status {
    VOLTA_TRY(write_all(temporary.fd.get(), bytes, temporary.path));
    VOLTA_TRY(fsync_file(temporary.fd.get(), temporary.path));
    VOLTA_TRY(temporary.fd.close(temporary.path));
    if (file_ops().rename(temporary.path, path) != 0) return fail_to_write("replace", path, errno);
    return fsync_directory(parent_path(path));
  };
  Status status = write_and_rename();
  if (!status) file_ops().unlink(temporary.path);
  return status;
}

Status write_file_atomic(const std::string& path, std::string_view text) {
  return write_file_atomic(path, as_bytes(text));
}

Result<FileWriter> FileWriter::open(const std::string& path, Mode mode) {
  const int flags = O_WRONLY | O_CREAT | (mode == Mode::kCreate ? O_TRUNC : O_APPEND);
  VOLTA_TRY(Descriptor fd, open_file(path, flags, "create"));
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return fail_system("examine", path, errno);
  return FileWriter(path, fd.release(), info.st_size);
}

Result<FileWriter> FileWriter::open_temporary(const std::string& target) {
  VOLTA_TRY(TemporaryFile file, create_temporary_file(target));
  return FileWriter(std::move(file.path), file.fd.release(), 0);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      buffer_(std::move(other.buffer_)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  if (Status status = close(); !status) log(LogLevel::kError, status.error().message());
}

Status FileWriter::check_open() const {
  if (fd_ >= 0) return {};
  return fail(ErrorCode::kIo,
              fmt::format("cannot write '{}': closed, or failed before; open it again", path_));
}

void FileWriter::abandon() {
  file_ops().close(std::exchange(fd_, -1));
  buffer_.clear();
}

Status FileWriter::write(std::span<const std::byte> bytes) {
  VOLTA_TRY(check_open());
  size_ += static_cast<int64_t>(bytes.size());
  if (buffer_.size() + bytes.size() > kWriterBufferBytes) VOLTA_TRY(flush());
  if (bytes.size() <= kWriterBufferBytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return {};
  }
  Status status = write_all(fd_, bytes, path_);  // Too large to be worth a copy.
  if (!status) abandon();
  return status;
}

Status FileWriter::write(std::string_view text) { return write(as_bytes(text)); }

Status FileWriter::flush() {
  VOLTA_TRY(check_open());
  Status status = write_all(fd_, buffer_, path_);
  buffer_.clear();
  if (!status) abandon();
  return status;
}

Status FileWriter::sync() {
  VOLTA_TRY(flush());
  Status status = fsync_file(fd_, path_);
  if (!status) abandon();
  return status;
}

Status FileWriter::close() {
  VOLTA_TRY(flush());
  return Descriptor(std::exchange(fd_, -1)).close(path_);
}

Status truncate_file(const std::string& path, int64_t size) {
  VOLTA_TRY(const int64_t old_size, file_size(path));
  if (size < 0 || size > old_size) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot cut '{}' of {} bytes to {}", path, old_size, size));
  }
  VOLTA_TRY(Descriptor fd, open_file(path, O_WRONLY, "open"));
  if (retry_interrupted([&] { return file_ops().ftruncate(fd.get(), size); }) != 0) {
    return fail_system("cut", path, errno);
  }
  VOLTA_TRY(fsync_file(fd.get(), path));
  return fd.close(path);
}

Status fsync_directory(const std::string& path) {
  VOLTA_TRY(Descriptor fd, open_file(path, O_RDONLY | O_DIRECTORY, "open folder"));
  return fsync_file(fd.get(), path);
}

Status rename_path(const std::string& from, const std::string& to) {
  if (file_ops().rename(from, to) != 0) {
    return fail_to_write(fmt::format("rename to '{}' the path", to), from, errno);
  }
  return fsync_directory(parent_path(to));
}

Result<DirectoryLock> DirectoryLock::acquire(const std::string& directory) {
  const std::string path = join_path(directory, ".lock");
  VOLTA_TRY(Descriptor fd, open_file(path, O_RDWR | O_CREAT, "create"));
  if (retry_interrupted([&] { return flock(fd.get(), LOCK_EX | LOCK_NB); }) != 0) {
    if (errno != EWOULDBLOCK) return fail_system("lock", path, errno);
    const Result<std::string> pid = read_text_file(path, 64);
    return fail(ErrorCode::kIo,
                fmt::format("folder '{}' is in use by process {}: wait for it to end, or choose "
                            "another folder",
                            directory, pid && !pid->empty() ? *pid : "unknown"));
  }
  if (file_ops().ftruncate(fd.get(), 0) != 0) return fail_system("write", path, errno);
  VOLTA_TRY(write_all(fd.get(), as_bytes(fmt::format("{}", getpid())), path));
  return DirectoryLock(fd.release());
}

DirectoryLock& DirectoryLock::operator=(DirectoryLock&& other) noexcept {
  if (this != &other) {
    release();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

DirectoryLock::~DirectoryLock() { release(); }

void DirectoryLock::release() {
  if (fd_ >= 0) file_ops().close(std::exchange(fd_, -1));  // The lock goes with the descriptor.
}

bool path_exists(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<int64_t> file_size(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return fail_system("examine", path, errno);
  return regular_file_size(info, path);
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  const auto close_folder = [](DIR* folder) { closedir(folder); };
  const std::unique_ptr<DIR, decltype(close_folder)> folder(opendir(path.c_str()), close_folder);
  if (!folder) return fail_system("list folder", path, errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;  // readdir answers null both at the end and on failure.
    const dirent* entry = readdir(folder.get());
    if (entry == nullptr) break;
    std::string name = std::data(entry->d_name);
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  if (errno != 0) return fail_system("list folder", path, errno);
  std::ranges::sort(names);
  return names;
}

namespace {

Status create_directory(const std::string& path) {
  if (is_directory(path)) return {};
  if (file_ops().mkdir(path, kFolderMode) == 0) return {};
  const int mkdir_errno = errno;
  if (mkdir_errno == EEXIST) {
    if (is_directory(path)) return {};  // Someone else was faster.
    return fail(ErrorCode::kIo,
                fmt::format("cannot create folder '{}': what is there is no folder", path));
  }
  return fail_to_write("create folder", path, mkdir_errno);
}

Status remove_tree(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return fail_system("examine", path, errno);
  }
  if (!S_ISDIR(info.st_mode)) {
    if (file_ops().unlink(path) != 0) return fail_system("remove", path, errno);
    return {};
  }
  VOLTA_TRY(const std::vector<std::string> names, list_directory(path));
  for (const std::string& name : names) VOLTA_TRY(remove_tree(join_path(path, name)));
  if (file_ops().rmdir(path) != 0) return fail_system("remove folder", path, errno);
  return {};
}

}  // namespace

Status create_directories(const std::string& path) {
  if (path.empty()) return fail(ErrorCode::kInvalidArgument, "the name of a folder is empty");
  if (path.size() >= PATH_MAX) {  // Before half of it is made.
    return fail(ErrorCode::kIo,
                fmt::format("the name of a folder has {} bytes, more than the {} that the system "
                            "takes: '{}...'",
                            path.size(), PATH_MAX - 1, path.substr(0, 60)));
  }
  for (size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    VOLTA_TRY(create_directory(path.substr(0, end)));
  }
  return {};
}

Status remove_all(const std::string& path) {
  const std::string name = file_name(path);
  if (name.empty() || name == "." || name == "..") {
    return fail(ErrorCode::kInvalidArgument, fmt::format("will not remove '{}'", path));
  }
  return remove_tree(path);
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty() || name.starts_with('/')) return std::string(name);
  if (name.empty()) return std::string(directory);
  return fmt::format("{}{}{}", directory, directory.ends_with('/') ? "" : "/", name);
}

namespace {

// The path without slashes at its end; "" for the root.
std::string_view trim_slashes(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return path;
}

}  // namespace

Result<std::string> make_temporary_directory(const std::string& path) {
  const std::string_view target = trim_slashes(path);
  if (target.empty()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' names no new folder", path));
  }
  VOLTA_TRY(create_directories(parent_path(target)));
  for (int tries = 1;; ++tries) {
    std::string temporary = next_temporary_name(target);
    if (file_ops().mkdir(temporary, kFolderMode) == 0) return temporary;
    if (errno == EEXIST && tries < kTemporaryTries) continue;
    return fail_to_write("create folder", temporary, errno);
  }
}

std::string parent_path(std::string_view path) {
  const std::string_view trimmed = trim_slashes(path);
  if (trimmed.empty()) return path.empty() ? "." : "/";
  const size_t slash = trimmed.rfind('/');
  if (slash == std::string_view::npos) return ".";
  const std::string_view parent = trim_slashes(trimmed.substr(0, slash));
  return parent.empty() ? "/" : std::string(parent);
}

std::string file_name(std::string_view path) {
  const std::string_view trimmed = trim_slashes(path);
  const size_t slash = trimmed.rfind('/');
  return std::string(slash == std::string_view::npos ? trimmed : trimmed.substr(slash + 1));
}

}  // namespace volta
