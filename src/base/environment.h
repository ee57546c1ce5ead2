// Environment variables.
#pragma once

#include <cstdlib>
#include <string_view>

namespace volta {

/// The value of an environment variable, valid until the program changes it; empty when it is not
/// set.
inline std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

}  // namespace volta
