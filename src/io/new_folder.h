// The place of a folder that is made whole and then given its name (quantize, merge, convert).
// Knows nothing of what goes into it.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"
#include "base/temporary.h"

namespace volta {

/// A folder that is filled under another name; what is not published is removed.
///
/// Where nothing has the name yet, or an empty folder, one rename puts all of it in place. An empty
/// folder that cannot be replaced (something is mounted on it, or its parent cannot be written) is
/// filled from a folder inside it, file by file, config.json last: without it no model is found.
/// A symbolic link to an empty folder stands for that folder.
class NewFolder {
 public:
  /// Finds out, before the work, whether the folder can be put at this path, and makes the one to
  /// be filled (missing parents are made, and stay). Removes what a killed process left of the
  /// same. kInvalidArgument for an empty name and for a folder that is not empty; kIo for what is
  /// no folder, a link that leads nowhere, and a place that cannot be written.
  static Result<NewFolder> create(const std::string& path);

  /// Where to put the files.
  const std::string& path() const { return temporary_.path(); }
  /// Once, when they are all there. On failure (kIo) nothing of them stays, but for a failure to
  /// flush the finished folder to disk, whose message says so.
  Status publish();

 private:
  NewFolder(TemporaryFolder temporary, std::string target, bool inside)
      : temporary_(std::move(temporary)), target_(std::move(target)), inside_(inside) {}
  Status move_inside();

  TemporaryFolder temporary_;
  std::string target_;
  bool inside_ = false;  ///< The temporary folder is in the target.
};

/// Whether a new folder can be put at this path: create() without the rest.
Status check_new_folder(const std::string& path);

}  // namespace volta
