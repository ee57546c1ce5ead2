// Files as the rest of Volta sees them: read whole and checked, written so that a crash or a full
// disk never leaves half a file under the final name, and nothing is written through a link. Knows
// no format. What opens, reads, writes and changes names goes through FileOps, so that tests can
// make the n-th call fail.
#pragma once

#include <sys/statvfs.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/file_ops.h"
#include "base/memory.h"
#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// Files larger than this are refused unless the caller says otherwise (16 GiB).
inline constexpr int64_t kDefaultMaxFileBytes = int64_t{16} << 30;

/// The whole file. kNotFound when there is none; kIo when unreadable or when it shrinks meanwhile;
/// kInvalidFile for a folder or device, or when longer than `max_bytes`; kOutOfMemory when it does
/// not fit.
Result<HeapArray<std::byte>> read_binary_file(const std::string& path,
                                              int64_t max_bytes = kDefaultMaxFileBytes);

/// The same as text (bytes as they are: see find_invalid_utf8 in base/text.h).
Result<std::string> read_text_file(const std::string& path,
                                   int64_t max_bytes = kDefaultMaxFileBytes);
/// The same, and nothing when there is no such file.
Result<std::optional<std::string>> read_text_file_if_there(const std::string& path,
                                                           int64_t max_bytes);

/// Whether a file may take this path's place: kIo unless a regular file or nothing is there. A
/// symbolic link is refused, too: a rename would replace the link and not what it names. So is a
/// file that something is mounted on (a container's bind mount): it cannot be renamed over.
Status check_replaceable(const std::string& path);

/// Puts a file with these bytes at `path`, or leaves what was there: written under a temporary name
/// in the same folder, fsynced, renamed, folder fsynced. On failure (kIo) the temporary is removed;
/// when the folder's fsync alone fails, the new file is in place but may not survive a power loss.
/// kIo also where check_replaceable refuses.
Status write_file_atomic(const std::string& path, std::span<const std::byte> bytes);
Status write_file_atomic(const std::string& path, std::string_view text);

/// A file being written through a buffer. Errors appear at write(), flush(), sync() or close();
/// after the first one the writer refuses everything else. Destroyed without close(), it tries to
/// flush and logs a failure. Move-only.
///
/// While a large file is being written, the disk gets what was written before, a piece at a time:
/// write() waits for it, so that a sync() at the end, which nothing can interrupt, has no more than
/// two pieces (32 MiB) to wait for.
class FileWriter {
 public:
  enum class Mode {
    kCreate,  ///< Create, or empty what is there.
    kAppend,  ///< Create, or go on at the end.
  };

  /// kIo when the folder is missing or the system refuses; kInvalidFile as open_to_change of
  /// base/descriptor.h, for links above all.
  static Result<FileWriter> open(const std::string& path, Mode mode);

  /// A new file beside `target`, to be filled and renamed to it: path() is one of
  /// is_temporary_name (base/temporary.h). The caller removes it when that comes to nothing. kIo as
  /// open(), and where check_replaceable refuses `target`.
  static Result<FileWriter> open_temporary(const std::string& target);

  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  /// Hands everything written so far to the system: visible to readers, not yet safe from power
  /// loss.
  Status flush();
  /// flush() and fsync().
  Status sync();
  /// flush() and close. Call sync() first where the bytes must survive a power loss.
  Status close();

  /// The file's length if everything buffered were written, in bytes.
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  FileWriter(std::string path, int fd, int64_t size, Descriptor lock = {})
      : path_(std::move(path)),
        fd_(fd),
        size_(size),
        handed_over_(size),
        piece_begin_(size),
        lock_(std::move(lock)) {}
  Status check_open() const;
  Status hand_over(std::span<const std::byte> bytes);
  Status write_back_piece();
  void abandon();

  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
  int64_t handed_over_ = 0;  ///< The bytes of the file that the system has.
  int64_t piece_begin_ = 0;  ///< What lies before it the disk has, or is being given.
  std::vector<std::byte> buffer_;
  Descriptor lock_;  ///< Of a temporary, until the writer goes out of scope.
};

/// Cuts a file to `size` bytes and fsyncs it. kNotFound, kIo; kInvalidArgument when the file is
/// shorter than that; kInvalidFile as open_to_change of base/descriptor.h.
Status truncate_file(const std::string& path, int64_t size);

/// Makes renames, creations and removals inside a folder durable.
Status fsync_directory(const std::string& path);

/// Renames a file or folder within one file system, and fsyncs the target's folder. kIo.
Status rename_path(const std::string& from, const std::string& to);
/// Makes a rename to `to` that has just worked durable. The message of a failure (kIo) says that
/// the file or folder is in its place.
Status fsync_renamed(const std::string& to);

/// Exclusive use of a folder, by an flock on `DIR/.lock`; released when it goes out of scope or
/// when the process ends, however it ends. Move-only. (The lock file itself stays: removing it
/// would race.) On a file system without locks, a warning is logged and nothing is excluded.
class DirectoryLock {
 public:
  /// kIo when another process (named by its pid) or another DirectoryLock of this one holds the
  /// folder, or the lock file cannot be made (the folder is missing). kInvalidFile when `.lock` is
  /// not one that this program made: a link, no regular file, or one with more than a process's
  /// number in it. Such a file is not changed.
  static Result<DirectoryLock> acquire(const std::string& directory);

 private:
  explicit DirectoryLock(Descriptor fd) : fd_(std::move(fd)) {}

  Descriptor fd_;  ///< The lock goes with it.
};

/// Follows symbolic links; false also when the path cannot be looked at.
bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
/// Whether the path itself is a symbolic link.
bool is_link(const std::string& path);
/// Where a symbolic link leads to, as it was written: relative to the folder that it is in, or
/// absolute. kNotFound, kIo (it is no link).
Result<std::string> read_link(const std::string& path);
/// Whether something is mounted at this path; false where the system cannot tell.
bool is_mount_point(const std::string& path);

/// Whether both paths lead to one file or folder; false when one of them leads nowhere.
bool is_same_place(const std::string& a, const std::string& b);
/// Whether a path is that of a folder, or of something in it, at any depth.
bool is_inside(const std::string& path, const std::string& folder);

/// The regular file's size in bytes. kNotFound, kInvalidFile (a folder or device), kIo.
Result<int64_t> file_size(const std::string& path);

/// The bytes that this process may still write to the file system of a file or folder. kNotFound,
/// kIo.
Result<int64_t> free_bytes(const std::string& path);

/// Asks the system to drop its copy of a file in memory, so that the next read comes from the disk.
/// A hint: file systems may keep the copy, and what is not fsynced stays. kNotFound, kIo.
Status drop_cached_pages(const std::string& path);

/// The names in a folder (not paths; without . and ..), sorted. kNotFound, kIo.
Result<std::vector<std::string>> list_directory(const std::string& path);

/// Makes the folder and its missing parents. No error when it is there; kInvalidArgument for an
/// empty name, kIo otherwise (a name longer than the system takes, and what is no folder, too).
Status create_directories(const std::string& path);

/// Removes a file or a folder with everything in it; symbolic links are removed, never followed. No
/// error when nothing is there. kInvalidArgument for "", paths that end in . or .., and the root.
Status remove_all(const std::string& path);

/// "a/b" + "c" = "a/b/c"; an absolute or empty side is returned as it is.
std::string join_path(std::string_view directory, std::string_view name);
/// The path without links, `.` and `..`, as the system resolves it. kNotFound, kIo.
Result<std::string> real_path(const std::string& path);
/// The folder of a path ("." when it has none, "/" for the root), and its last component.
std::string parent_path(std::string_view path);
std::string file_name(std::string_view path);

}  // namespace volta
