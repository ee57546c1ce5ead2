// One way to turn errno into an Error, shared by the files of base that make system calls.
#pragma once

#include <expected>
#include <string_view>

#include "base/error.h"

namespace volta {

/// "cannot ACTION 'PATH': what the system says": kNotFound for ENOENT, ENOTDIR and a name too long
/// to exist, kInvalidFile for links that lead in a circle, kOutOfMemory for ENOMEM, kIo for the
/// rest (with the remedy for a full disk and a lack of permission).
[[nodiscard]] std::unexpected<Error> fail_system(std::string_view action, std::string_view path,
                                                 int error_number);

/// The same where something is made or written: all but kOutOfMemory is kIo, since nothing that the
/// caller named to be read is missing or wrong.
[[nodiscard]] std::unexpected<Error> fail_to_write(std::string_view action, std::string_view path,
                                                   int error_number);

}  // namespace volta
