// Errors as values: a code for programs and a message for people. Callers add context to the
// message as they return it.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace [[gnu::visibility("default")]] volta {

/// The kind of an error. Programs branch on it; people read Error::message().
/// The command line maps each code to a documented exit code (docs/cli.md).
enum class ErrorCode {
  kInvalidArgument,  ///< A value from the caller is invalid (shape, type, range, flag).
  kNotFound,         ///< A named file, tensor, preset or parameter does not exist.
  kIo,               ///< The operating system refused a read, write, rename or lock.
  kInvalidFile,      ///< A file was read, and its content or kind is invalid.
  kOutOfMemory,      ///< Memory whose size depends on input could not be allocated.
  kDevice,           ///< The device is missing, or failed while it ran.
  kUnsupported,      ///< Valid, but unsupported by this device or build.
  kNonFinite,        ///< A NaN or infinity prevents training or inference from going on.
  kInterrupted,      ///< The caller cancelled (SIGINT, SIGTERM, a stop callback).
  kMismatch,         ///< A verification compared two results, and they differ.
  kInternal,         ///< A broken invariant of Volta itself. Please report it.
};

/// The name of the code in docs and logs, e.g. "invalid_argument".
std::string_view error_code_name(ErrorCode code);

/// An error value. The message names the object and the remedy. Context is put in front of it, the
/// outermost first:
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
