// DeviceKind: which backend to use, and how an environment variable selects it.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// A kind of device. It is used like an enum: as DeviceKind::kCpu, and in switch statements.
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

  /// The kind of the device that DeviceChoice::parse returns.
  static Result<DeviceKind> parse(std::string_view word, std::string_view source = "device");
  /// The kind of the device that DeviceChoice::detect returns.
  static Result<DeviceKind> detect();

 private:
  Value value_;
};

/// A kind of device, and its number among the devices of that kind.
struct DeviceChoice {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;  ///< CUDA: the device's number, from 0.

  bool operator==(const DeviceChoice&) const = default;

  /// Parses `word`: "cpu", "cuda" (the first CUDA device), "cuda:1", or "auto" (CUDA if it is
  /// usable, otherwise the CPU). `source` is where the word came from ("--device"), for error
  /// messages. kInvalidArgument for other words. Parsing does not check that a CUDA device exists;
  /// creating the device does.
  static Result<DeviceChoice> parse(std::string_view word, std::string_view source = "device");

  /// Parses VOLTA_DEVICE with parse(). If it is not set or empty, "auto" is used.
  static Result<DeviceChoice> detect();
};

}  // namespace volta
