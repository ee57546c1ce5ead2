// Replaces a folder by a finished new one in one step. Everything in the old folder that the new
// one lacks is kept. Knows nothing of the content of the folders.
//
// At every moment, even if the process is killed or the power fails, the name refers to the
// complete old folder or to the complete new one. There is one exception: a file system that cannot
// exchange two folders (NFS, some FUSE) needs two renames, and between them nothing has the name.
// recover_folder() then gives it back to the old folder.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace volta {

/// Whether this process was started in the folder, or below it; the path comes from real_path. Such
/// a folder must keep its place: relative names, and the user's shell, would lead nowhere.
Result<bool> holds_current_folder(const std::string& folder);

/// Checks by a trial whether replace_folder() can replace this folder, before the work for it is
/// done. kInvalidArgument for a mount point and for a folder that contains the current directory of
/// this process; kIo if its files cannot get a second name (a hard link).
Status check_replaceable_folder(const std::string& folder);

/// Replaces `folder` by `fresh`, a finished folder beside it; both paths come from real_path.
/// Everything that `folder` has and `fresh` lacks is carried over under the same name, files by
/// hard links; the names in `outdated` get ".old" appended. The replaced folder is then removed. A
/// failure to remove it is only logged as a warning, because the result is complete. On an error
/// (kIo) `folder` is unchanged.
Status replace_folder(const std::string& fresh, const std::string& folder,
                      std::span<const std::string_view> outdated);

/// Whether a path is a remainder that a killed command left beside the folder `folder_name`. This
/// is decided by its name, and by the mark in it if the name is not enough. recover_folder() and
/// the next TemporaryFolder::create for that folder may remove it or rename it to the folder's
/// name.
bool is_left_of(const std::string& path, std::string_view folder_name);

/// Completes a killed replace_folder(). If nothing has the folder's name, the old folder gets it
/// back. If the folder that replaced the old one has the name, the old one is removed. If another
/// folder has the name, the old folder may be the only copy: it stays, and a warning names it.
/// Changes only folders of this user that replace_folder() has marked, and no links to them. Does
/// nothing if the folder's parent cannot be listed. kIo.
Status recover_folder(const std::string& folder);

}  // namespace volta
