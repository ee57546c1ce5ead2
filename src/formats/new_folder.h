// The place of a model folder that is filled under a temporary name and then renamed (quantize,
// merge, convert). Of the folder's content it knows only the names of a model's files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/descriptor.h"
#include "base/result.h"
#include "base/temporary.h"

namespace volta {

/// A folder that is filled under a temporary name. It is removed if it is not published.
///
/// If nothing exists under the name yet, or only an empty folder, one rename puts everything in
/// place. An empty folder that cannot be replaced (because it is a mount point, its parent is
/// not writable, or the command was started in it) is filled from a folder inside it, file by file.
/// config.json is moved last: as long as it is missing, no command takes the folder for a model. If
/// the caller allows it, a folder that holds a model is replaced in one step
/// (base/replace_folder.h). A symbolic link to a folder stands for that folder.
class NewFolder {
 public:
  /// Checks before the work whether the folder can be put at this path, and creates the temporary
  /// folder. Missing parents are created and stay. Remains of killed commands on the same path are
  /// removed. With `replace`, the model in an existing folder may be replaced. Its files whose
  /// names the new folder has are replaced, and all its other files stay. There is one exception:
  /// settings of the old model that the new model lacks (a chat template, for example) get ".old"
  /// appended to their names.
  /// kInvalidArgument for an empty name, for a folder that is not empty, and with `replace` for a
  /// folder that cannot be replaced as a whole (see check_replaceable_folder) or whose weights are
  /// in several files. kIo for a folder that another command is replacing, a path that is not a
  /// folder, a link that leads nowhere, and a place that cannot be written.
  static Result<NewFolder> create(const std::string& path, bool replace = false);

  /// The folder to write the files into.
  const std::string& path() const { return temporary_.path(); }
  /// Puts the folder in place. Call it once, after all files are written. kIo; kInvalidArgument if
  /// another program made a folder of this name meanwhile. After an error the old content is
  /// unchanged and the new files are removed. One error is different: when the finished folder
  /// could not be flushed to disk, the new files are in place, and the message says so.
  Status publish();

 private:
  /// How the files get to their place.
  enum class Way : std::uint8_t { kRename, kMoveInside, kReplace };

  NewFolder(TemporaryFolder temporary, std::string target, Way way, Descriptor lock = {})
      : temporary_(std::move(temporary)),
        target_(std::move(target)),
        way_(way),
        lock_(std::move(lock)) {}
  static Result<NewFolder> create_in_place_of(const std::string& target);
  static Result<NewFolder> create_for_empty(const std::string& target);
  Status move_inside();

  TemporaryFolder temporary_;
  std::string target_;
  Way way_ = Way::kRename;
  Descriptor lock_;  ///< Of the folder that will be replaced.
};

/// Checks whether a new folder can be put at this path: the checks of create().
Status check_new_folder(const std::string& path, bool replace = false);

/// Whether NewFolder::create(`to`) leaves `from`, a file or folder that the command reads, in
/// place. kInvalidArgument when `from` is, or is inside, a remainder of a killed command on `to`,
/// because such a remainder would be removed or renamed.
Status check_source_stays(const std::string& from, const std::string& to);

/// Whether the content of the folder `to`, if any, may be replaced by a model that is made from the
/// model in the folder `from`. kInvalidArgument when `to` holds no model, and when data that is
/// still to be read would be lost: `to` is `from`, or the weights in `from` are links that lead to
/// or through `to`. The errors of open_weight_files() for `from`.
Status check_gives_way(const std::string& to, const std::string& from);

}  // namespace volta
