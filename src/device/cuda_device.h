// CudaDevice: the entry point for NVIDIA GPUs. The rest of Volta uses only this class, so that
// everything but src/device and src/kernels/cuda is the same with and without a CUDA toolkit.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "device/device.h"

namespace volta {

struct CudaDeviceOptions {
  int index = 0;  ///< The number of the GPU, from 0, in the order of the CUDA runtime.
  /// Asked before each run of a plan, and by long work outside of plans; true stops the work with
  /// kInterrupted. As in CpuDeviceOptions.
  std::function<bool()> interrupted = {};
};

class CudaDevice {
 public:
  /// Opens a GPU. kDevice, with the reason and the remedy, if it cannot be used: no driver, a
  /// driver that is older than this build needs, no such GPU, a GPU below compute capability 8.0,
  /// or a build without the CUDA backend.
  static Result<std::shared_ptr<Device>> create(const CudaDeviceOptions& options = {});
  /// Whether create() can succeed on this machine with this build; the error gives the reason.
  static Status usable();
  /// The number of GPUs that the driver shows; 0 if none is usable.
  static int count();
};

}  // namespace volta
