// The names of the error codes.
#include "base/error.h"

namespace volta {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kInvalidFile:
      return "invalid_file";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kDevice:
      return "device";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kNonFinite:
      return "non_finite";
    case ErrorCode::kInterrupted:
      return "interrupted";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

}  // namespace volta
