// DeviceKind: which backend to use, and how the environment says so.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace volta {

/// A kind of device. Used like an enum (DeviceKind::kCpu; it can be switched on).
class DeviceKind {
 public:
  enum Value : std::uint8_t { kCpu, kCuda };

  constexpr DeviceKind(Value value)  // NOLINT(google-explicit-constructor): is its value.
      : value_(value) {}
  constexpr operator Value() const {  // NOLINT(google-explicit-constructor): for switch and ==.
    return value_;
  }

  /// "cpu" or "cuda".
  constexpr std::string_view name() const { return value_ == kCpu ? "cpu" : "cuda"; }

  /// The kind that `word` asks for: "cpu", "cuda", or "auto" (cuda where it is usable, otherwise
  /// cpu). `source` names who said it in the message ("--device"). kInvalidArgument for other
  /// words. "cuda" is granted without a look at the machine: creating the device says what is
  /// missing.
  static Result<DeviceKind> parse(std::string_view word, std::string_view source = "device");

  /// What VOLTA_DEVICE (cpu, cuda or auto) asks for; auto when it is not set or empty.
  static Result<DeviceKind> detect();

 private:
  Value value_;
};

}  // namespace volta
