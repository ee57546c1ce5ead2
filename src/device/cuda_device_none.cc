// CudaDevice in a build without the CUDA backend: every call returns an error.
#include <fmt/format.h>

#include "device/cuda_device.h"

namespace volta {

Status CudaDevice::usable() {
  return fail(ErrorCode::kDevice,
              "this build of Volta has no CUDA backend; use the CPU (VOLTA_DEVICE=cpu, or "
              "--device cpu), or build with -DVOLTA_CUDA=ON");
}

int CudaDevice::count() { return 0; }

Result<std::shared_ptr<Device>> CudaDevice::create(const CudaDeviceOptions& options) {
  return std::unexpected(
      usable().error().with_context(fmt::format("CUDA device {}", options.index)));
}

}  // namespace volta
