// CudaDevice: the door to NVIDIA GPUs. Its kernels come with an issue of their own; until then
// create() says so. The rest of Volta asks here only, so that nothing else changes when they land.
#pragma once

#include <memory>

#include "base/result.h"
#include "device/device.h"

namespace volta {

class CudaDevice {
 public:
  /// Device number `index`. kDevice, with the reason and the remedy, when it cannot be used.
  static Result<std::shared_ptr<Device>> create(int index = 0);
  /// Whether create(0) can succeed on this machine with this build; the error says why not.
  static Status usable();
};

}  // namespace volta
