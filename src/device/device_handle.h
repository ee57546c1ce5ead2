// DeviceHandle holds a device of any backend as one value and has the calls that small programs
// need. Copies share the device. It adds checks and convenience, but no computation of its own.
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
  int index = 0;                                         ///< CUDA: the device's number.
  std::function<bool()> interrupted = {};                ///< As in CpuDeviceOptions.
  std::shared_ptr<const cpu::MatMulTuning> tuning = {};  ///< CPU: as in CpuDeviceOptions.
};

class DeviceHandle {
 public:
  /// Reads no file; open_device() (tuner/open_device.h) also loads what `volta tune` found. Errors
  /// are those of CpuDevice::create and CudaDevice::create.
  static Result<DeviceHandle> create(const DeviceOptions& options);
  static Result<DeviceHandle> create(DeviceKind kind);
  /// The device that VOLTA_DEVICE selects (see DeviceChoice::detect).
  static Result<DeviceHandle> create();
  /// A handle to a device that was created elsewhere, such as a proxy. kInvalidArgument for null.
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
  /// Copies a host tensor, or `values` as an f32 tensor of `shape`, to the device.
  Result<Tensor> copy_to_device(const Tensor& host) const;
  Result<Tensor> copy_to_device(const Shape& shape, std::span<const float> values) const;
  /// Copies a tensor to host memory.
  Result<Tensor> copy_to_host(const Tensor& tensor) const;
  /// Copies the tensor's f32 elements to `values`, which must have the same number of elements.
  Status copy_to_host(const Tensor& tensor, std::span<float> values) const;
  /// Releases the tensor's memory now and leaves the tensor empty. kInvalidArgument, without any
  /// effect, if the memory belongs to another device or another tensor still shares it. Optional:
  /// memory is freed with the last tensor that uses it.
  Status free(Tensor& tensor) const;

  /// As in device/tensor_ops.h, which has more ops: a [.., M, K] times b [K, N], or batched.
  Result<Tensor> matmul(const Tensor& a, const Tensor& b) const;
  /// Along the last axis.
  Result<Tensor> softmax(const Tensor& x) const;
  Result<Tensor> relu(const Tensor& x) const;

 private:
  explicit DeviceHandle(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::shared_ptr<Device> device_;  ///< Never null.
};

}  // namespace volta
