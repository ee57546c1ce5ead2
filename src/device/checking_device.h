// Looks for NaN and infinity in everything an op wrote, to find the first op that made one. Slow
// (it reads every result); the trainer runs a bad step once more with the check listening.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/result.h"
#include "device/device.h"
#include "device/device_proxy.h"
#include "device/op_call.h"
#include "tensor/buffer.h"

namespace volta {

/// Listens to executables of one device. After each step its float outputs, and the inputs it
/// writes, must be finite: kNonFinite otherwise, naming the op, its label, the tensor's shape, the
/// first bad element, and an input that was bad before. It keeps no state of a run.
class FiniteCheck final : public StepListener {
 public:
  /// `memory` is that of the executables' device.
  explicit FiniteCheck(std::shared_ptr<MemoryOwner> memory) : memory_(std::move(memory)) {}
  Status step_ends(std::size_t step, const OpCall& call) override;

 private:
  std::shared_ptr<MemoryOwner> memory_;
};

/// A device that wraps another and checks so what it loads, and every single op.
class CheckingDevice final : public DeviceProxy {
 public:
  /// kInvalidArgument for a null device.
  static Result<std::shared_ptr<CheckingDevice>> create(std::shared_ptr<Device> device);

  Status run(const OpCall& call) override;

 protected:
  Result<Executable> load_plan(std::shared_ptr<const Plan> plan, const TensorLookup& lookup,
                               std::shared_ptr<DeviceBuffer> arena) override;

 private:
  explicit CheckingDevice(std::shared_ptr<Device> device);

  std::shared_ptr<FiniteCheck> check_;
};

}  // namespace volta
