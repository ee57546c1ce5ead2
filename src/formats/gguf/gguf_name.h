// Names of GGUF files. Internal to formats, train and the command line; opens no file.
#pragma once

#include <algorithm>
#include <string_view>

namespace volta {

/// Whether a name ends in .gguf, in upper or lower case.
inline bool has_gguf_name(std::string_view path) {
  constexpr std::string_view kSuffix = ".gguf";
  if (path.size() < kSuffix.size()) return false;
  return std::ranges::equal(path.substr(path.size() - kSuffix.size()), kSuffix, [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b;
  });
}

}  // namespace volta
