// Errors as values: a code for programs, a message for people, context added on the way up.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace [[gnu::visibility("default")]] volta {

/// What kind of thing went wrong. Programs branch on this; people read Error::message().
/// The command line maps each code to a documented exit code (docs/cli.md).
enum class ErrorCode {
  kInvalidArgument,  ///< A value the caller passed cannot work (shape, type, range, flag).
  kNotFound,         ///< A named thing (file, tensor, preset, parameter) does not exist.
  kIo,               ///< The operating system refused a read, write, rename or lock.
  kInvalidFile,      ///< A file was read and is not what it should be.
  kOutOfMemory,      ///< Memory whose size came from input could not be had.
  kDevice,           ///< The device is missing, or failed while it ran.
  kUnsupported,      ///< Valid, but this device or build cannot do it.
  kNonFinite,        ///< A NaN or infinity where training or inference cannot go on.
  kInterrupted,      ///< The caller cancelled (SIGINT, SIGTERM, a stop callback).
  kMismatch,         ///< A verification compared two results and they differ.
  kInternal,         ///< A broken invariant of Volta itself: please report it.
};

/// The code's name as it is written in docs and logs, e.g. "invalid_argument".
std::string_view error_code_name(ErrorCode code);

/// An error value. Messages name the thing and the remedy; context reads outermost first:
/// "loading model 'x': tensor 'wte': shape [3, 4] does not fit ...".
class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }

  /// The same error with `context: ` put before the message.
  Error with_context(std::string_view context) && {
    message_.insert(0, ": ");
    message_.insert(0, context);
    return std::move(*this);
  }

 private:
  ErrorCode code_;
  std::string message_;
};

}  // namespace volta
