// The place of a model's folder that is made whole and then given its name (quantize, merge,
// convert). Knows of what goes into it only the names of a model's files.
#pragma once

#include <cstdint>
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
/// A folder with a model in it is replaced in one step (base/replace_folder.h), where the caller
/// allows it. A symbolic link to a folder stands for that folder.
class NewFolder {
 public:
  /// Finds out, before the work, whether the folder can be put at this path, and makes the one to
  /// be filled (missing parents are made, and stay). Removes what a killed process left of the
  /// same. With `replace` the model in a folder that is there may be replaced: files of the names
  /// that the new folder has give way, and all others stay, but for the settings of the old model
  /// that the new one lacks (a chat template, say), which get ".old" appended.
  /// kInvalidArgument for an empty name, for a folder that is not empty, and with `replace` for one
  /// that cannot be replaced as a whole (check_replaceable_folder) or whose weights lie in several
  /// files; kIo for what is no folder, a link that leads nowhere, and a place that cannot be
  /// written.
  static Result<NewFolder> create(const std::string& path, bool replace = false);

  /// Where to put the files.
  const std::string& path() const { return temporary_.path(); }
  /// Once, when they are all there. On failure (kIo) nothing of them stays, and what was there is
  /// as it was, but for a failure to flush the finished folder to disk, whose message says so.
  Status publish();

 private:
  /// How the files come to their place.
  enum class Way : std::uint8_t { kRename, kMoveInside, kReplace };

  NewFolder(TemporaryFolder temporary, std::string target, Way way)
      : temporary_(std::move(temporary)), target_(std::move(target)), way_(way) {}
  static Result<NewFolder> create_in_place_of(const std::string& target);
  static Result<NewFolder> create_for_empty(const std::string& target);
  Status move_inside();

  TemporaryFolder temporary_;
  std::string target_;
  Way way_ = Way::kRename;
};

/// Whether a new folder can be put at this path: create() without the rest.
Status check_new_folder(const std::string& path, bool replace = false);

/// Whether NewFolder::create(`to`) leaves `from`, a file or folder that the command reads, where it
/// is: kInvalidArgument when `from` is, or lies in, what a killed command left of `to`, which would
/// be removed or renamed.
Status check_source_stays(const std::string& from, const std::string& to);

/// Whether what is in the folder `to`, if anything, may give way to a model that is made from the
/// one in the folder `from`. kInvalidArgument when it holds no model, and when what is read would
/// be lost: `to` is `from`, or the way of links from weights in `from` goes through `to`. The
/// errors of open_weight_files() for `from`.
Status check_gives_way(const std::string& to, const std::string& from);

}  // namespace volta
