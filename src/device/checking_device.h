// CheckingDevice: looks for NaN and infinity in everything an op wrote, to find the first op that
// made one. Slow (it reads every result); the trainer runs a bad step once more under it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace volta {

/// A device that wraps another. After each op its float outputs, and the inputs it writes, must be
/// finite: kNonFinite otherwise, naming the op, its label, the tensor's shape, the first bad
/// element, and an input that was bad before.
class CheckingDevice final : public Device {
 public:
  /// kInvalidArgument for a null device.
  static Result<std::shared_ptr<CheckingDevice>> create(std::shared_ptr<Device> device);

  Status run(const OpCall& call) override;

  DeviceInfo info() const override { return inner_->info(); }
  const std::shared_ptr<const DeviceIdentity>& identity() const override {
    return inner_->identity();
  }
  const std::shared_ptr<MemoryOwner>& memory() const override { return inner_->memory(); }
  bool interrupted() const override { return inner_->interrupted(); }
  Status synchronize() override { return inner_->synchronize(); }
  bool supports(const Op& op, std::span<const TensorSpec> inputs) const override {
    return inner_->supports(op, inputs);
  }
  std::int64_t workspace_bytes(const Op& op, std::span<const TensorSpec> inputs,
                               std::span<const TensorSpec> outputs) const override {
    return inner_->workspace_bytes(op, inputs, outputs);
  }
  std::string kernel_parameters(const Op& op, std::span<const TensorSpec> inputs) const override {
    return inner_->kernel_parameters(op, inputs);
  }
  Encoding preferred_encoding(const Op& op, std::size_t input,
                              const TensorSpec& spec) const override {
    return inner_->preferred_encoding(op, input, spec);
  }
  Result<std::vector<Tensor>> evaluate(const Op& op, std::span<const Tensor> inputs) override {
    return inner_->evaluate(op, inputs);
  }

 private:
  explicit CheckingDevice(std::shared_ptr<Device> device) : inner_(std::move(device)) {}

  std::shared_ptr<Device> inner_;
};

}  // namespace volta
