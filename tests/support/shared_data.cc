// The one file that knows where the sources lie, so that the others compile to the same everywhere.
#include "support/shared_data.h"

#include <cstdlib>

namespace volta::test {

std::string source_path(std::string_view name) { return VOLTA_SOURCE_DIR "/" + std::string(name); }

std::string shared_path(std::string_view name) {
  const char* root = std::getenv("VOLTA_SHARED");
  const bool given = root != nullptr && *root != '\0';
  return (given ? std::string(root) : source_path("../shared")) + "/" + std::string(name);
}

}  // namespace volta::test
