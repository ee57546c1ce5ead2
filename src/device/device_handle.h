// DeviceHandle: one value to hold any backend by, with the calls that small programs need. Copies
// share the device. It adds checks and convenience, no computation of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/result.h"
#include "device/device.h"
#include "device/device_kind.h"
#include "kernels/cpu/cpu.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

/// What device to make.
struct DeviceOptions {
  DeviceKind kind = DeviceKind::kCpu;
  int threads = 0;                                       ///< CPU: as in CpuDeviceOptions.
  std::optional<cpu::Simd> simd = {};                    ///< CPU: as in CpuDeviceOptions.
  int index = 0;                                         ///< CUDA: which one.
  std::function<bool()> interrupted = {};                ///< CPU: as in CpuDeviceOptions.
  std::shared_ptr<const cpu::MatMulTuning> tuning = {};  ///< CPU: as in CpuDeviceOptions.
};

class DeviceHandle {
 public:
  /// Reads no file: open_device() (tuner/open_device.h) also loads what `volta tune` found. The
  /// errors of CpuDevice::create and CudaDevice::create.
  static Result<DeviceHandle> create(const DeviceOptions& options);
  static Result<DeviceHandle> create(DeviceKind kind);
  /// The device that VOLTA_DEVICE asks for (see DeviceChoice::detect).
  static Result<DeviceHandle> create();
  /// A handle to a device made elsewhere (a proxy, one of your own). kInvalidArgument for null.
  static Result<DeviceHandle> wrap(std::shared_ptr<Device> device);

  Device& device() const { return *device_; }
  const std::shared_ptr<Device>& shared() const { return device_; }
  DeviceInfo info() const { return device_->info(); }

  Status run(const OpCall& call) const { return device_->run(call); }
  Result<Executable> load(std::shared_ptr<const Plan> plan, const TensorLookup& lookup) const {
    return device_->load(std::move(plan), lookup);
  }
  Status synchronize() const { return device_->synchronize(); }

  /// Uninitialised memory on the device.
  Result<Tensor> alloc(const TensorSpec& spec) const;
  /// A copy on the device of a host tensor, or of `values` as f32 `shape`.
  Result<Tensor> copy_to_device(const Tensor& host) const;
  Result<Tensor> copy_to_device(const Shape& shape, std::span<const float> values) const;
  /// A copy in host memory.
  Result<Tensor> copy_to_host(const Tensor& tensor) const;
  /// Copies the tensor's f32 elements to `values`, whose size must be theirs.
  Status copy_to_host(const Tensor& tensor, std::span<float> values) const;
  /// Gives the tensor's memory back now and leaves it empty. kInvalidArgument, and nothing happens,
  /// when the memory is another device's or another tensor still shares it. Optional: memory frees
  /// itself with its last tensor.
  Status free(Tensor& tensor) const;

  /// As in device/tensor_ops.h, which has the rest: a [.., M, K] times b [K, N], or batched.
  Result<Tensor> matmul(const Tensor& a, const Tensor& b) const;
  /// Along the last axis.
  Result<Tensor> softmax(const Tensor& x) const;
  Result<Tensor> relu(const Tensor& x) const;

 private:
  explicit DeviceHandle(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::shared_ptr<Device> device_;  ///< Never null.
};

}  // namespace volta
