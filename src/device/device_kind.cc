// DeviceKind and DeviceChoice: parsing of device names.
#include "device/device_kind.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/environment.h"
#include "device/cuda_device.h"

namespace volta {

namespace {

// The number in "cuda:12": only digits, and no leading zeros.
std::optional<int> parse_index(std::string_view digits) {
  constexpr std::size_t kMostDigits = 4;
  if (digits.empty() || digits.size() > kMostDigits) return std::nullopt;
  if (digits.size() > 1 && digits.front() == '0') return std::nullopt;
  int index = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), index);
  if (error != std::errc() || end != digits.end() || index < 0) return std::nullopt;
  return index;
}

}  // namespace

Result<DeviceChoice> DeviceChoice::parse(std::string_view word, std::string_view source) {
  constexpr std::string_view kNumbered = "cuda:";
  if (word == "cpu") return DeviceChoice{};
  if (word == "cuda") return DeviceChoice{.kind = DeviceKind::kCuda};
  if (word == "auto") {
    return DeviceChoice{.kind = CudaDevice::usable() ? DeviceKind::kCuda : DeviceKind::kCpu};
  }
  if (word.starts_with(kNumbered)) {
    const std::optional<int> index = parse_index(word.substr(kNumbered.size()));
    if (index) return DeviceChoice{.kind = DeviceKind::kCuda, .index = *index};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: '{}' is no device; choose cpu, cuda, cuda:1 (a GPU by its number, "
                          "from 0) or auto",
                          source, word));
}

Result<DeviceChoice> DeviceChoice::detect() {
  const std::string_view word = environment("VOLTA_DEVICE");
  return parse(word.empty() ? "auto" : word, "VOLTA_DEVICE");
}

Result<DeviceKind> DeviceKind::parse(std::string_view word, std::string_view source) {
  VOLTA_TRY(const DeviceChoice choice, DeviceChoice::parse(word, source));
  return choice.kind;
}

Result<DeviceKind> DeviceKind::detect() {
  VOLTA_TRY(const DeviceChoice choice, DeviceChoice::detect());
  return choice.kind;
}

}  // namespace volta
