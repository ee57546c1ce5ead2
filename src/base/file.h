// The file functions of Volta. Files are read whole and checked. They are written so that a crash
// or a full disk never leaves an incomplete file under the final name, and never through a link.
// Knows no file format. System calls that open, read, write and rename files go through FileOps, so
// that tests can make the n-th call fail.
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
#include "base/work_budget.h"

namespace [[gnu::visibility("default")]] volta {

/// The default limit for the size of files that are read (16 GiB).
inline constexpr std::int64_t kDefaultMaxFileBytes = std::int64_t{16} << 30;

/// Reads the whole file. kNotFound if there is none; kIo if it cannot be read or shrinks while it
/// is read; kInvalidFile for a folder or device, or if it is longer than `max_bytes`; kOutOfMemory
/// if there is not enough memory.
Result<HeapArray<std::byte>> read_binary_file(const std::string& path,
                                              std::int64_t max_bytes = kDefaultMaxFileBytes);

/// The same as text. The bytes are not checked: see find_invalid_utf8 in base/text.h. Also
/// kInterrupted, if `interrupted`, which is asked before every 16 MiB, returns true.
Result<std::string> read_text_file(const std::string& path,
                                   std::int64_t max_bytes = kDefaultMaxFileBytes,
                                   const Interruption& interrupted = {});
/// The same; nothing if there is no such file.
Result<std::optional<std::string>> read_text_file_if_there(const std::string& path,
                                                           std::int64_t max_bytes);

/// Checks whether a file can be renamed to this path: kIo unless there is a regular file or
/// nothing. A symbolic link is an error, because a rename would replace the link and not its
/// target. So is a file that is a mount point (a container's bind mount), because a rename cannot
/// replace it.
Status check_replaceable(const std::string& path);

/// What the last step of writing a file does with a file that already has the name. A caller that
/// found nothing there before its work chooses kKeep, so that a file that another program makes
/// meanwhile is not lost. On a file system that can neither rename without replacing nor make hard
/// links, the name is examined just before the rename, and a file made in between is replaced.
enum class Existing : std::uint8_t {
  kReplace,
  kKeep,  ///< kInvalidArgument, and the new file is removed.
};

/// Puts a file with these bytes at `path`, or leaves the old file unchanged. It writes to a
/// temporary name in the same folder, calls fsync, renames the file, and calls fsync on the folder.
/// On failure (kIo) the temporary file is removed. If only the fsync of the folder fails, the new
/// file is in place but may not survive a power failure. kIo also if check_replaceable fails.
Status write_file_atomic(const std::string& path, std::span<const std::byte> bytes,
                         Existing existing = Existing::kReplace);
Status write_file_atomic(const std::string& path, std::string_view text,
                         Existing existing = Existing::kReplace);

/// Writes a file through a buffer. write(), flush(), sync() and close() return errors; after the
/// first error all further calls fail. The destructor closes an open file, and logs an error if
/// that fails. Move-only.
///
/// A large file is written back to the disk in pieces while it is being written. write() waits for
/// earlier pieces, so that sync() at the end, which cannot be interrupted, waits for at most two
/// pieces (32 MiB).
class FileWriter {
 public:
  enum class Mode {
    kCreate,  ///< Create the file, or empty an existing one.
    kAppend,  ///< Create the file, or append to an existing one.
  };

  /// kIo if the folder is missing or the system reports another error; kInvalidFile as for
  /// open_to_change (base/descriptor.h), for example for links.
  static Result<FileWriter> open(const std::string& path, Mode mode);

  /// Makes a new file beside `target`, which the caller fills and renames to `target`, or removes
  /// if that fails. path() is a temporary name (base/temporary.h). kIo as for open(), and if
  /// check_replaceable fails for `target`.
  static Result<FileWriter> open_temporary(const std::string& target);

  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  /// Passes everything written so far to the system. Other processes can then read it, but it may
  /// not survive a power failure.
  Status flush();
  /// flush() and fsync().
  Status sync();
  /// flush() and close. Call sync() first if the bytes must survive a power failure.
  Status close();

  /// The length of the file in bytes, including buffered bytes.
  std::int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  FileWriter(std::string path, int fd, std::int64_t size, Descriptor lock = {})
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
  std::int64_t size_ = 0;
  std::int64_t handed_over_ = 0;  ///< The bytes that were passed to the system.
  std::int64_t piece_begin_ = 0;  ///< Write-back of all bytes before it has begun.
  std::vector<std::byte> buffer_;
  Descriptor lock_;  ///< The lock of a temporary file; held until destruction.
};

/// Truncates a file to `size` bytes and calls fsync. kNotFound, kIo; kInvalidArgument if the file
/// is shorter than `size`; kInvalidFile as for open_to_change (base/descriptor.h).
Status truncate_file(const std::string& path, std::int64_t size);

/// Makes renames, creations and removals inside a folder durable.
Status fsync_directory(const std::string& path);

/// Renames a file or folder within one file system, and calls fsync on the target's folder. kIo;
/// kInvalidArgument if `to` exists and is to be kept.
Status rename_path(const std::string& from, const std::string& to,
                   Existing existing = Existing::kReplace);
/// The same without the fsync.
Status rename_without_fsync(const std::string& from, const std::string& to, Existing existing);
/// Renames a file or folder to NAME + `suffix` (+ ".2", ".3", ... if that name is taken), so that
/// its replacement overwrites nothing. Returns the new path. kIo.
Result<std::string> set_aside(const std::string& path, std::string_view suffix);

/// Makes a rename to `to` durable, after the rename itself has succeeded. The message of a failure
/// (kIo) says that the file or folder is in its place, unless it is only a part of a temporary
/// (base/temporary.h), which the caller removes.
Status fsync_renamed(const std::string& to);

/// The name of the file that a DirectoryLock makes in its folder.
inline constexpr std::string_view kLockFile = ".lock";

/// Exclusive use of a folder, by an flock on `DIR/.lock`. It is released when the object goes out
/// of scope, or when the process ends for any reason. Move-only. The lock file itself stays,
/// because removing it would be a race. On a file system without locks, a warning is logged and
/// other processes are not excluded.
class DirectoryLock {
 public:
  /// kIo if another process (the message has its pid) or another DirectoryLock of this process
  /// holds the folder, or if the lock file cannot be created (the folder is missing). kInvalidFile
  /// if this program did not make `.lock`: it is a link or not a regular file, or contains anything
  /// but a process id. Such a file is not changed.
  static Result<DirectoryLock> acquire(const std::string& directory);

  /// Where the locked folder is: the path that acquire() got or, if the folder has been moved
  /// since, its new path. Another folder may have the old path by then. kIo if it has been removed.
  /// The old path where nothing can be examined.
  Result<std::string> place() const;

 private:
  DirectoryLock(Descriptor lock, Descriptor folder, std::string directory)
      : lock_(std::move(lock)), folder_(std::move(folder)), directory_(std::move(directory)) {}

  Descriptor lock_;    ///< Closing it releases the lock.
  Descriptor folder_;  ///< Of the folder itself.
  std::string directory_;
};

/// Whether something exists at this path. Follows symbolic links; false also if the path cannot be
/// examined.
bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
/// Whether the path itself is a symbolic link.
bool is_link(const std::string& path);
/// The target of a symbolic link as stored in it: absolute, or relative to the folder of the link.
/// kNotFound, kIo (not a link).
Result<std::string> read_link(const std::string& path);
/// Whether something is mounted at this path; false if the system cannot tell.
bool is_mount_point(const std::string& path);

/// Whether both paths lead to the same file or folder; false if one of them does not exist.
bool is_same_place(const std::string& a, const std::string& b);
/// Whether `path` is `folder` itself or something inside it, at any depth.
bool is_inside(const std::string& path, const std::string& folder);

/// The regular file's size in bytes. kNotFound, kInvalidFile (a folder or device), kIo.
Result<std::int64_t> file_size(const std::string& path);

/// The free bytes for this process on the file system of a file or folder. kNotFound, kIo.
Result<std::int64_t> free_bytes(const std::string& path);

/// Advises the system to drop its cached pages of a file, so that the next read comes from the
/// disk. File systems may keep the pages, and keep those that have not been written back.
/// kNotFound, kIo.
Status drop_cached_pages(const std::string& path);

/// The names in a folder, sorted. They are not paths, and . and .. are left out. kNotFound, kIo.
Result<std::vector<std::string>> list_directory(const std::string& path);

/// Makes the folder and its missing parents. An existing folder is no error. kInvalidArgument for
/// an empty name; kIo for all other errors, such as a name that is too long or a file with this
/// name.
Status create_directories(const std::string& path);

/// Removes a file, or a folder with everything in it. Symbolic links are removed, never followed. A
/// missing path is no error. kInvalidArgument for "", for paths that end in . or .., and for the
/// root.
Status remove_all(const std::string& path);

/// "a/b" and "c" give "a/b/c". An absolute `name` is returned unchanged. If one side is empty, the
/// result is the other one.
std::string join_path(std::string_view directory, std::string_view name);
/// The absolute path without links, `.` and `..`, as the system resolves it. kNotFound, kIo.
Result<std::string> real_path(const std::string& path);
/// The folder of a path ("." when it has none, "/" for the root), and its last component.
std::string parent_path(std::string_view path);
std::string file_name(std::string_view path);
/// Whether a name that a file gives can only mean a file of that file's own folder: it is no path,
/// neither "." nor "..", has no NUL, and is not too long for a file system.
bool is_plain_file_name(std::string_view name);

}  // namespace volta
