// Files and folders that wait under another name until they are whole, and what killed programs
// left of them.
//
// The name is NAME.tmp-volta-RRRRRRRRCCCCCCCC: a random number and a checksum of all before it, by
// which such a name is known to be this program's, and nothing else of a similar name is touched.
// Whoever fills a temporary holds a lock (flock) on it, which the system takes away when the
// process ends: a temporary without a holder is abandoned. On a file system without locks nobody
// can tell, and abandoned temporaries stay until somebody removes them.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "base/result.h"

namespace volta {

/// A file of this name in a folder: the folder was replaced, and recover_folder()
/// (base/replace_folder.h) decides what becomes of it. It never counts as abandoned.
inline constexpr std::string_view kReplacedMark = ".volta-replaced";

/// Whether a name (not a path) is one that this program gives to temporaries.
bool is_temporary_name(std::string_view name);

/// Removes the abandoned temporaries in a folder; with `target`, a file's or folder's name in it,
/// only those that were to become it. Those of other users, and those that cannot be locked or
/// removed, stay. Quiet: they harm nobody.
void remove_abandoned_temporaries(const std::string& directory, std::string_view target = {});

/// A free name of a temporary beside `target`, for what makes room and is removed at once: when the
/// program is killed in between, what has the name counts as abandoned.
std::string retired_path(const std::string& target);

/// A new file, open for writing, that waits to become `target`. Whoever makes one renames or
/// removes it.
struct TemporaryFile {
  std::string path;
  Descriptor fd;
  Descriptor lock;  ///< Held until the file has its name.
};
/// Removes what a killed writer of `target` left first. kIo where check_replaceable refuses, and
/// when the file cannot be made.
Result<TemporaryFile> create_temporary_file(const std::string& target);

/// A new, empty folder that waits to take another name. Move-only; removed, with everything in it,
/// when it goes out of scope unless it was renamed.
class TemporaryFolder {
 public:
  /// Beside `target`; missing parents are made. Removes what a killed writer of `target` left
  /// first. kInvalidArgument for the root and an empty name, kIo as create_directories.
  static Result<TemporaryFolder> create(const std::string& target);

  TemporaryFolder(TemporaryFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }
  /// Gives it its name, durably; an empty folder that has it is replaced, and its rights are taken
  /// over. kIo; where the rename itself has worked the message says so, and the folder stays.
  Status rename_to(const std::string& target);
  /// Gives it up: whoever calls this renames or removes it.
  void release() { path_.clear(); }

 private:
  TemporaryFolder(std::string path, Descriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;  ///< Empty when it has its name, or was moved from.
  Descriptor lock_;
};

}  // namespace volta
