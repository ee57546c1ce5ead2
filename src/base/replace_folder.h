// A finished folder takes the place of one that is there, in one step, and nothing of the old one
// that the new one does not have is lost. Knows nothing of what the folders hold.
//
// At every moment, a kill or a power loss included, the name stands for the whole old folder or for
// the whole new one. There is one exception: a file system that cannot swap two folders (NFS, some
// FUSE) has a moment between two renames at which nothing has the name; recover_folder() then gives
// it back to the old folder.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace volta {

/// Whether replace_folder() can take this folder's place, found out before the work by trying:
/// kInvalidArgument for a mount point and for a folder that this process works in, kIo where what
/// it holds cannot get a second name (a hard link).
Status check_replaceable_folder(const std::string& folder);

/// `made`, a finished folder beside `folder`, takes its place; both paths are of real_path. All
/// that `folder` holds and `made` does not goes along under its name (files as they are, by hard
/// links), but for the names in `outdated`, which get ".old" appended. What was replaced is
/// removed; where that fails, a warning is logged, for the result is complete. kIo, with `folder`
/// as it was.
Status replace_folder(const std::string& made, const std::string& folder,
                      std::span<const std::string_view> outdated);

/// Whether a path is by its name, and by the mark where that is needed to tell, what a killed
/// command left of the folder `folder_name` beside it. recover_folder() and whoever makes that
/// folder next (TemporaryFolder::create) may remove it or give it the folder's name.
bool is_left_of(const std::string& path, std::string_view folder_name);

/// Brings a killed replace_folder() to its end: gives the old folder its name back where nothing
/// has it, or removes it where the folder that replaced it has the name. Where another one has, the
/// old folder may be the only copy: it stays, and a warning names it. Touches only folders of this
/// user that replace_folder() has marked, no links to them; does nothing where the folder's parent
/// cannot be listed. kIo.
Status recover_folder(const std::string& folder);

}  // namespace volta
