// Reading and writing files on POSIX. What base/file.h says of paths and folders is in path.cc.
#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/system_error.h"
#include "base/temporary.h"
#include "base/text.h"

namespace volta {

namespace {

constexpr std::size_t kWriterBufferBytes = std::size_t{256} << 10;
constexpr std::int64_t kPieceBytes = std::int64_t{16}
                                     << 20;  // The unit of reading and of write-back.

struct OpenedFile {
  Descriptor fd;
  std::int64_t size;
};

Result<std::int64_t> regular_file_size(const struct stat& info, const std::string& path) {
  if (S_ISREG(info.st_mode)) return std::int64_t{info.st_size};
  return fail(ErrorCode::kInvalidFile,
              fmt::format("'{}' is {}, not a regular file", path,
                          S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe"));
}

// Opens a regular file of at most max_bytes for reading. O_NONBLOCK prevents waiting for the other
// end of a named pipe.
Result<OpenedFile> open_to_read(const std::string& path, std::int64_t max_bytes) {
  VOLTA_TRY(Descriptor fd, open_file(path, O_RDONLY | O_NONBLOCK, "open"));
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return fail_system("examine", path, errno);
  VOLTA_TRY(const std::int64_t size, regular_file_size(info, path));
  if (size > max_bytes) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("'{}' has {} bytes, more than the {} allowed", path, size, max_bytes));
  }
  return OpenedFile{std::move(fd), size};
}

// Checks the number of bytes that were read of a file.
Status check_read(const OpenedFile& file, std::int64_t n, const std::string& path) {
  // Some files of the system, for example in /proc, report a size of 0 but are not empty.
  std::array<std::byte, 1> more = {};
  const bool claims_nothing = n == 0 && file.size == 0;
  VOLTA_TRY(const std::int64_t rest,
            claims_nothing ? read_up_to(file.fd.get(), more, path) : std::int64_t{0});
  if (rest > 0) {
    return fail(
        ErrorCode::kInvalidFile,
        fmt::format("'{}' does not tell its length: copy it (cat) and name the copy", path));
  }
  if (n == file.size) return {};
  return fail(ErrorCode::kIo, fmt::format("'{}' ended after {} of its {} bytes: was it changed "
                                          "while it was read?",
                                          path, n, file.size));
}

}  // namespace

Result<HeapArray<std::byte>> read_binary_file(const std::string& path, std::int64_t max_bytes) {
  VOLTA_TRY(const OpenedFile file, open_to_read(path, max_bytes));
  VOLTA_TRY(auto bytes, try_make_array<std::byte>(file.size));
  VOLTA_TRY(const std::int64_t n, read_up_to(file.fd.get(), bytes.span(), path));
  VOLTA_TRY(check_read(file, n, path));
  return bytes;
}

Result<std::string> read_text_file(const std::string& path, std::int64_t max_bytes,
                                   const Interruption& interrupted) {
  VOLTA_TRY(const OpenedFile file, open_to_read(path, max_bytes));
  // A std::string cannot report a failed allocation as an Error, so this first tries to allocate a
  // block of that size.
  if (auto probe = try_allocate(file.size); !probe) {
    return std::unexpected(std::move(probe).error().with_context(fmt::format("'{}'", path)));
  }
  std::string text;
  text.reserve(static_cast<std::size_t>(file.size));
  std::int64_t n = 0;
  for (std::int64_t begin = 0; begin < file.size && n == begin; begin = std::ssize(text)) {
    if (interrupted && interrupted()) {
      return fail(ErrorCode::kInterrupted, fmt::format("interrupted reading '{}'", path));
    }
    text.resize(static_cast<std::size_t>(std::min(begin + kPieceBytes, file.size)));
    const auto piece = std::span(text).subspan(static_cast<std::size_t>(begin));
    VOLTA_TRY(const std::int64_t read,
              read_up_to(file.fd.get(), std::as_writable_bytes(piece), path));
    n += read;
  }
  VOLTA_TRY(check_read(file, n, path));
  return text;
}

Result<std::optional<std::string>> read_text_file_if_there(const std::string& path,
                                                           std::int64_t max_bytes) {
  auto text = read_text_file(path, max_bytes);
  if (text) return *std::move(text);
  if (text.error().code() == ErrorCode::kNotFound) return std::nullopt;
  return std::unexpected(std::move(text).error());
}

Status check_replaceable(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return {};
  if (S_ISREG(info.st_mode)) {
    if (!is_mount_point(path)) return {};
    return fail(ErrorCode::kIo,
                fmt::format("cannot replace '{}': it is mounted by itself; mount its folder, or "
                            "give another path",
                            path));
  }
  const std::string_view kind = S_ISLNK(info.st_mode)   ? "a symbolic link"
                                : S_ISDIR(info.st_mode) ? "a folder"
                                                        : "a device or pipe";
  return fail(ErrorCode::kIo,
              fmt::format("cannot write '{}': it is {}; give the path of a file", path, kind));
}

namespace {

// Renames `from` to a name that nothing has. -1 and errno, EEXIST if something has it.
int rename_to_free_name(const std::string& from, const std::string& to) {
  if (file_ops().rename_new(from, to) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) return -1;
  // The file system cannot do this (NFS, for example). A hard link never replaces anything either.
  if (file_ops().link(from, to) == 0) {
    file_ops().unlink(from);  // If this fails, a second name stays, which counts as abandoned.
    return 0;
  }
  if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP) return -1;
  // It has no hard links either (FAT, for example).
  struct stat info = {};
  if (lstat(to.c_str(), &info) != 0) return file_ops().rename(from, to);
  errno = EEXIST;
  return -1;
}

}  // namespace

Status rename_without_fsync(const std::string& from, const std::string& to, Existing existing) {
  const bool replace = existing == Existing::kReplace;
  if ((replace ? file_ops().rename(from, to) : rename_to_free_name(from, to)) == 0) return {};
  if (!replace && errno == EEXIST) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' was made by another program meanwhile, and stays as it is; name "
                            "another file",
                            to));
  }
  return fail_to_write(fmt::format("rename to '{}' the path", to), from, errno);
}

Status write_file_atomic(const std::string& path, std::span<const std::byte> bytes,
                         Existing existing) {
  VOLTA_TRY(TemporaryFile temporary, create_temporary_file(path));
  const auto write_and_rename = [&]() -> Status {
    VOLTA_TRY(write_all(temporary.fd.get(), bytes, temporary.path));
    VOLTA_TRY(fsync_file(temporary.fd.get(), temporary.path));
    VOLTA_TRY(temporary.fd.close(temporary.path));
    return rename_path(temporary.path, path, existing);
  };
  Status status = write_and_rename();
  if (!status) file_ops().unlink(temporary.path);
  return status;
}

Status write_file_atomic(const std::string& path, std::string_view text, Existing existing) {
  return write_file_atomic(path, as_bytes(text), existing);
}

Result<FileWriter> FileWriter::open(const std::string& path, Mode mode) {
  const int flags = O_WRONLY | O_CREAT | (mode == Mode::kAppend ? O_APPEND : 0);
  VOLTA_TRY(Descriptor fd, open_to_change(path, flags, "create"));
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return fail_system("examine", path, errno);
  if (mode == Mode::kAppend) return FileWriter(path, fd.release(), info.st_size);
  // The file is emptied here and not by open(), because open_to_change first checks that it is not
  // a link.
  if (file_ops().ftruncate(fd.get(), 0) != 0) return fail_system("empty", path, errno);
  return FileWriter(path, fd.release(), 0);
}

Result<FileWriter> FileWriter::open_temporary(const std::string& target) {
  VOLTA_TRY(TemporaryFile file, create_temporary_file(target));
  return FileWriter(std::move(file.path), file.fd.release(), 0, std::move(file.lock));
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      handed_over_(other.handed_over_),
      piece_begin_(other.piece_begin_),
      buffer_(std::move(other.buffer_)),
      lock_(std::move(other.lock_)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(handed_over_, other.handed_over_);
  std::swap(piece_begin_, other.piece_begin_);
  std::swap(buffer_, other.buffer_);
  lock_ = std::move(other.lock_);
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
  size_ += static_cast<std::int64_t>(bytes.size());
  if (buffer_.size() + bytes.size() > kWriterBufferBytes) VOLTA_TRY(flush());
  if (bytes.size() <= kWriterBufferBytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return {};
  }
  return hand_over(bytes);  // Large writes bypass the buffer.
}

// Passes bytes to the system. When a piece is complete, its write-back to the disk begins.
Status FileWriter::hand_over(std::span<const std::byte> bytes) {
  Status status;
  while (status && !bytes.empty()) {
    const auto room = static_cast<std::size_t>(kPieceBytes - (handed_over_ - piece_begin_));
    const auto part = bytes.first(std::min(bytes.size(), room));
    status = write_all(fd_, part, path_);
    handed_over_ += static_cast<std::int64_t>(part.size());
    if (status && part.size() == room) status = write_back_piece();
    bytes = bytes.subspan(part.size());
  }
  if (!status) abandon();
  return status;
}

// Begins to write back the latest piece before it waits for the previous one, so that the disk is
// never idle.
Status FileWriter::write_back_piece() {
  VOLTA_TRY(begin_write_back(fd_, piece_begin_, kPieceBytes, path_));
  const std::int64_t before = piece_begin_ - kPieceBytes;
  piece_begin_ += kPieceBytes;
  return before < 0 ? Status() : finish_write_back(fd_, before, kPieceBytes, path_);
}

Status FileWriter::write(std::string_view text) { return write(as_bytes(text)); }

Status FileWriter::flush() {
  VOLTA_TRY(check_open());
  Status status = hand_over(buffer_);
  buffer_.clear();
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

Status truncate_file(const std::string& path, std::int64_t size) {
  VOLTA_TRY(const std::int64_t old_size, file_size(path));
  if (size < 0 || size > old_size) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot cut '{}' of {} bytes to {}", path, old_size, size));
  }
  VOLTA_TRY(Descriptor fd, open_to_change(path, O_WRONLY, "open"));
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

Status rename_path(const std::string& from, const std::string& to, Existing existing) {
  VOLTA_TRY(rename_without_fsync(from, to, existing));
  return fsync_renamed(to);
}

namespace {

// Whether a path is a temporary, lies in one, or marks a folder that is being replaced. After an
// error such a path is removed.
bool is_part_of_temporary(const std::string& path) {
  for (std::string place = path;; place = parent_path(place)) {
    const std::string name = file_name(place);
    if (is_temporary_name(name) || name == kReplacedMark) return true;
    if (place == "." || place == "/") return false;
  }
}

}  // namespace

Result<std::string> set_aside(const std::string& path, std::string_view suffix) {
  std::string aside = fmt::format("{}{}", path, suffix);
  for (int number = 2; path_exists(aside) || is_link(aside); ++number) {
    aside = fmt::format("{}{}.{}", path, suffix, number);
  }
  VOLTA_TRY(rename_path(path, aside));
  return aside;
}

Status fsync_renamed(const std::string& to) {
  Status synced = fsync_directory(parent_path(to));
  if (synced || is_part_of_temporary(to)) return synced;
  return std::unexpected(
      std::move(synced).error().with_context(fmt::format("'{}' is complete and in its place, but "
                                                         "may not survive a power failure",
                                                         to)));
}

Result<std::int64_t> file_size(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return fail_system("examine", path, errno);
  return regular_file_size(info, path);
}

Result<std::int64_t> free_bytes(const std::string& path) {
  struct statvfs info = {};
  if (file_ops().statvfs(path, info) != 0) return fail_system("examine", path, errno);
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

Status drop_cached_pages(const std::string& path) {
  VOLTA_TRY(const Descriptor fd, open_file(path, O_RDONLY | O_NONBLOCK, "open"));
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  return {};
}

}  // namespace volta
