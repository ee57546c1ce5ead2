// ProfilingDevice: measures every op that passes through it on the way to another device. It
// changes no result. While a plan runs it reads the clock once a step and stores the number;
// strings, sums and memory are handled before the first step and after the last one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "device/profile.h"

namespace volta {

struct ProfilingOptions {
  /// Calls kept for the time line, the latest ones; 0 keeps none. 24 bytes each.
  std::int64_t max_events = std::int64_t{1} << 16;
};

/// A device that wraps another. Each op is waited for, so that its time is its own. Safe to use
/// from several threads at once. From a plan's second execution on nothing is allocated. Direct
/// run() calls are measured too, at the cost of a look-up by text. This is to be the outermost
/// proxy: one around it would turn executions into single runs.
class ProfilingDevice final : public Device {
 public:
  /// kInvalidArgument for a null device or a negative number of events, kOutOfMemory.
  static Result<std::shared_ptr<ProfilingDevice>> create(std::shared_ptr<Device> device,
                                                         const ProfilingOptions& options = {});
  ~ProfilingDevice() override;

  /// What was seen since the start or the last reset().
  Profile profile() const;
  /// Forgets all numbers and events, and those of what is running right now.
  void reset();

  Status run(const OpCall& call) override;
  Status execute(BoundPlan& plan) override;

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
  class Recorder;
  ProfilingDevice(std::shared_ptr<Device> device, std::unique_ptr<Recorder> recorder);

  std::shared_ptr<Device> inner_;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace volta
