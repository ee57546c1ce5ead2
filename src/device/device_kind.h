// DeviceKind: which backend to use, and how the environment says so.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

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

  /// The kind of DeviceChoice::parse.
  static Result<DeviceKind> parse(std::string_view word, std::string_view source = "device");
  /// The kind of DeviceChoice::detect.
  static Result<DeviceKind> detect();

 private:
  Value value_;
};

/// A kind of device, and which one of that kind.
struct DeviceChoice {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;  ///< CUDA: the device's number, from 0.

  bool operator==(const DeviceChoice&) const = default;

  /// What `word` asks for: "cpu", "cuda" (the first one), "cuda:1", or "auto" (cuda where it is
  /// usable, otherwise cpu). `source` names who said it in the message ("--device").
  /// kInvalidArgument for other words. A CUDA device is granted without a look at the machine:
  /// creating it says what is missing.
  static Result<DeviceChoice> parse(std::string_view word, std::string_view source = "device");

  /// What VOLTA_DEVICE asks for in the words of parse(); auto when it is not set or empty.
  static Result<DeviceChoice> detect();
};

}  // namespace volta
