// CudaDevice without CUDA kernels: every call returns an error.
#include "device/cuda_device.h"

#include <fmt/format.h>

namespace volta {

Status CudaDevice::usable() {
  return fail(ErrorCode::kDevice,
              "this build of Volta has no CUDA backend; use the CPU (VOLTA_DEVICE=cpu, or "
              "--device cpu)");
}

Result<std::shared_ptr<Device>> CudaDevice::create(int index) {
  return std::unexpected(usable().error().with_context(fmt::format("CUDA device {}", index)));
}

}  // namespace volta
