// Converts errno to an Error.
#include "base/system_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace volta {

namespace {

ErrorCode code_of(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:  // No file can have such a name.
      return ErrorCode::kNotFound;
    case ELOOP:
      return ErrorCode::kInvalidFile;
    case ENOMEM:
      return ErrorCode::kOutOfMemory;
    default:
      return ErrorCode::kIo;
  }
}

std::string_view remedy_for(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return " (free some space or choose another folder)";
    case EACCES:
    case EPERM:
    case EROFS:
      return " (check its permissions or choose another place)";
    case ELOOP:
      return " (the link leads back to itself: remove it)";
    default:
      return "";
  }
}

}  // namespace

namespace {

std::unexpected<Error> fail_with(ErrorCode code, std::string_view action, std::string_view path,
                                 int error_number) {
  const std::string reason = std::generic_category().message(error_number);
  return std::unexpected(Error(
      code, fmt::format("cannot {} '{}': {}{}", action, path, reason, remedy_for(error_number))));
}

}  // namespace

std::unexpected<Error> fail_system(std::string_view action, std::string_view path,
                                   int error_number) {
  return fail_with(code_of(error_number), action, path, error_number);
}

std::unexpected<Error> fail_to_write(std::string_view action, std::string_view path,
                                     int error_number) {
  const bool memory = code_of(error_number) == ErrorCode::kOutOfMemory;
  return fail_with(memory ? ErrorCode::kOutOfMemory : ErrorCode::kIo, action, path, error_number);
}

}  // namespace volta
