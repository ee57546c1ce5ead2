// The version of Volta, for checkpoints, benchmarks and `volta version`.
#pragma once

#include <string_view>

namespace [[gnu::visibility("default")]] volta {

/// The release, e.g. "0.1.0".
std::string_view version();

/// The first twelve digits of the git commit of this build; empty for a build without git.
std::string_view git_hash();

/// Both in one word, e.g. "0.1.0+1a2b3c4d5e6f", or "0.1.0" when the commit is unknown.
std::string_view version_with_hash();

}  // namespace volta
