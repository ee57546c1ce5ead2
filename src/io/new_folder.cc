// The checks of new_folder.h.
#include "io/new_folder.h"

#include <fmt/format.h>

#include "base/file.h"

namespace volta {

Status check_new_folder(const std::string& path) {
  if (path_exists(path)) {
    VOLTA_TRY(create_directories(path));  // Refuses what is no folder.
    VOLTA_TRY(const auto names, list_directory(path));
    if (!names.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("folder '{}' is not empty; name a new one", path));
    }
  }
  VOLTA_TRY(const std::string trial, make_temporary_directory(path));
  return remove_all(trial);
}

}  // namespace volta
