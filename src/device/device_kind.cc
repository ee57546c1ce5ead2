// Which backend to use.
#include "device/device_kind.h"

#include <fmt/format.h>

#include <cstdlib>

#include "device/cuda_device.h"

namespace volta {

Result<DeviceKind> DeviceKind::parse(std::string_view word, std::string_view source) {
  if (word == "cpu") return kCpu;
  if (word == "cuda") return kCuda;
  if (word == "auto") return CudaDevice::usable() ? kCuda : kCpu;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: '{}' is no device; choose cpu, cuda or auto", source, word));
}

Result<DeviceKind> DeviceKind::detect() {
  const char* word = std::getenv("VOLTA_DEVICE");
  return parse(word == nullptr || std::string_view(word).empty() ? "auto" : word, "VOLTA_DEVICE");
}

}  // namespace volta
