// Files and folders that have a temporary name until they are complete, and the cleanup of those
// that killed programs have left.
//
// The name is NAME.tmp-volta-RRRRRRRRCCCCCCCC: a random number, and a checksum of everything before
// it. The checksum identifies the names that this program makes, so that other files with similar
// names are never touched. The process that fills a temporary holds a lock (flock) on it, which the
// system releases when the process ends. So a temporary without a lock is abandoned. On a file
// system without locks this cannot be decided, and abandoned temporaries stay until somebody
// removes them.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "base/result.h"

namespace volta {

/// A folder with a file of this name is being replaced, or was replaced. It never counts as
/// abandoned; recover_folder() (base/replace_folder.h) handles it.
inline constexpr std::string_view kReplacedMark = ".volta-replaced";

/// Whether a name (not a path) is one that this program gives to temporaries.
bool is_temporary_name(std::string_view name);

/// Removes the abandoned temporaries in a folder. With `target`, the name of a file or folder in
/// it, removes only the temporaries for this target. Those of other users, and those that cannot be
/// locked or removed, stay. This is no error, because they do no harm.
void remove_abandoned_temporaries(const std::string& directory, std::string_view target = {});

/// An unused temporary name beside `target`, for a file or folder that is renamed in order to be
/// removed at once. If the program is killed in between, it counts as abandoned.
std::string retired_path(const std::string& target);

/// A new file, open for writing, that will become `target`. The caller must rename or remove it.
struct TemporaryFile {
  std::string path;
  Descriptor fd;
  Descriptor lock;  ///< Hold it until the file is renamed.
};
/// First removes abandoned temporaries of `target`. kIo if check_replaceable fails or the file
/// cannot be created.
Result<TemporaryFile> create_temporary_file(const std::string& target);

/// A new, empty folder that will be renamed. Move-only. Unless it was renamed or released, it is
/// removed with everything in it when it goes out of scope.
class TemporaryFolder {
 public:
  /// Makes the folder beside `target`, and missing parents. First removes abandoned temporaries of
  /// `target`. kInvalidArgument for the root, an empty name, and paths whose last component is . or
  /// ..; kIo as for create_directories.
  static Result<TemporaryFolder> create(const std::string& target);

  TemporaryFolder(TemporaryFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }
  /// Renames the folder durably. An empty folder with the name `target` is replaced, and its
  /// permissions are taken over. kInvalidArgument if another program made something of this name
  /// meanwhile; kIo; if only the fsync after the rename fails, the message says
  /// that the folder is in its place.
  Status rename_to(const std::string& target);
  /// Gives up ownership: the caller must rename or remove the folder.
  void release() { path_.clear(); }

 private:
  TemporaryFolder(std::string path, Descriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;  ///< Empty after a rename, a release or a move.
  Descriptor lock_;
};

}  // namespace volta
