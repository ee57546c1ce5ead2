// One way to turn errno into an Error, shared by the files of base that make system calls.
#pragma once

#include <expected>
#include <string_view>

#include "base/error.h"

namespace volta {

/// "cannot ACTION 'PATH': REASON", with the system's text for the error number. kNotFound for
/// ENOENT, ENOTDIR and ENAMETOOLONG, kInvalidFile for links that form a loop, kOutOfMemory for
/// ENOMEM, kIo for all others. For a full disk, missing permissions and links in a loop the message
/// has a remedy.
[[nodiscard]] std::unexpected<Error> fail_system(std::string_view action, std::string_view path,
                                                 int error_number);

/// The same for creating and writing. All errors but kOutOfMemory are kIo, because no file that the
/// caller wants to read is missing or invalid.
[[nodiscard]] std::unexpected<Error> fail_to_write(std::string_view action, std::string_view path,
                                                   int error_number);

}  // namespace volta
