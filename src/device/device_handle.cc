// DeviceHandle: makes the selected device, and forwards calls to it.
#include "device/device_handle.h"

#include <fmt/format.h>

#include "device/cpu_device.h"
#include "device/cuda_device.h"
#include "device/memory_check.h"
#include "device/tensor_ops.h"

namespace volta {

Result<DeviceHandle> DeviceHandle::create(const DeviceOptions& options) {
  if (options.kind == DeviceKind::kCuda) {
    VOLTA_TRY(auto cuda,
              CudaDevice::create({.index = options.index, .interrupted = options.interrupted}));
    return DeviceHandle(std::move(cuda));
  }
  VOLTA_TRY(auto cpu, CpuDevice::create({.threads = options.threads,
                                         .simd = options.simd,
                                         .tuning = options.tuning,
                                         .interrupted = options.interrupted}));
  return DeviceHandle(std::move(cpu));
}

Result<DeviceHandle> DeviceHandle::create(DeviceKind kind) {
  return create(DeviceOptions{.kind = kind});
}

Result<DeviceHandle> DeviceHandle::create() {
  VOLTA_TRY(const DeviceChoice choice, DeviceChoice::detect());
  return create(DeviceOptions{.kind = choice.kind, .index = choice.index});
}

Result<DeviceHandle> DeviceHandle::wrap(std::shared_ptr<Device> device) {
  if (device == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "a handle needs a device, not null");
  }
  return DeviceHandle(std::move(device));
}

Result<Tensor> DeviceHandle::alloc(const TensorSpec& spec) const {
  return Tensor::empty(spec, device_->memory());
}

Result<Tensor> DeviceHandle::copy_to_device(const Tensor& host) const {
  return host.clone_to(device_->memory());
}

Result<Tensor> DeviceHandle::copy_to_device(const Shape& shape,
                                            std::span<const float> values) const {
  VOLTA_TRY(Tensor tensor, alloc({DType::kF32, shape}));
  VOLTA_TRY(tensor.write(values));
  return tensor;
}

Result<Tensor> DeviceHandle::copy_to_host(const Tensor& tensor) const {
  VOLTA_TRY(device_->synchronize());
  return tensor.clone_to(host_memory());
}

Status DeviceHandle::copy_to_host(const Tensor& tensor, std::span<float> values) const {
  VOLTA_TRY(device_->synchronize());
  return tensor.read(values);
}

Status DeviceHandle::free(Tensor& tensor) const {
  VOLTA_TRY(check_memory(*device_, tensor, true, "the tensor to free"));
  if (tensor.buffer() != nullptr && tensor.buffer().use_count() > 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the tensor to free ({}) shares its memory with another one, which "
                            "still uses it",
                            to_string(tensor.spec())));
  }
  VOLTA_TRY(device_->synchronize());
  tensor = Tensor();
  return {};
}

Result<Tensor> DeviceHandle::matmul(const Tensor& a, const Tensor& b) const {
  return tensor_ops::matmul(*device_, a, b);
}

Result<Tensor> DeviceHandle::softmax(const Tensor& x) const {
  return tensor_ops::softmax(*device_, x);
}

Result<Tensor> DeviceHandle::relu(const Tensor& x) const { return tensor_ops::relu(*device_, x); }

}  // namespace volta
