// Data that lies beside the source tree and is not part of it: model folders and texts made by
// others. Tests that need it skip where it is absent.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace volta::test {

/// The path of an entry of the shared folder: VOLTA_SHARED, or `../shared` beside the sources.
inline std::string shared_path(std::string_view name) {
  const char* root = std::getenv("VOLTA_SHARED");
  return std::string(root != nullptr && *root != '\0' ? root : VOLTA_SHARED_DEFAULT) + "/" +
         std::string(name);
}

inline bool has_shared(std::string_view name) { return std::filesystem::exists(shared_path(name)); }

}  // namespace volta::test

/// Ends the test as skipped, naming what is missing.
#define VOLTA_NEEDS_SHARED(name)                           \
  if (!volta::test::has_shared(name))                      \
  GTEST_SKIP() << volta::test::shared_path(name) << " is " \
               << "missing; set VOLTA_SHARED"
