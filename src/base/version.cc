// CMake defines the values for this file only (cmake/VoltaModuleFlags.cmake).
#include "base/version.h"

#ifndef VOLTA_VERSION
#error "VOLTA_VERSION is defined by the build"
#endif

namespace volta {

std::string_view version() { return VOLTA_VERSION; }

std::string_view git_hash() { return VOLTA_GIT_HASH; }

std::string_view version_with_hash() {
  return git_hash().empty() ? VOLTA_VERSION : VOLTA_VERSION "+" VOLTA_GIT_HASH;
}

}  // namespace volta
