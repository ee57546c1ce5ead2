// CudaDevice: the entry point for NVIDIA GPUs. There are no CUDA kernels yet, and create() returns
// an error that says so. The rest of Volta uses only this class, so that nothing else changes when
// the kernels are added.
#pragma once

#include <memory>

#include "base/result.h"
#include "device/device.h"

namespace volta {

class CudaDevice {
 public:
  /// Opens device number `index`. kDevice, with the reason and the remedy, if it cannot be used.
  static Result<std::shared_ptr<Device>> create(int index = 0);
  /// Whether create(0) can succeed on this machine with this build; the error gives the reason.
  static Status usable();
};

}  // namespace volta
