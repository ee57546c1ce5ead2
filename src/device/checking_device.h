// Checks everything that an op wrote for NaN and infinity, to find the first op that produced one.
// It is slow because it reads every result. The trainer repeats a bad step once with this check.
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

/// Listens to executables of one device. After each step, the op's float outputs and the inputs
/// that it writes must be finite. If not, the step fails with kNonFinite. The error names the op,
/// its label, the tensor's shape, the first bad element, and an input that was already bad. The
/// check keeps no state of a run.
class FiniteCheck final : public StepListener {
 public:
  /// `memory` is the memory of the executables' device.
  explicit FiniteCheck(std::shared_ptr<MemoryOwner> memory) : memory_(std::move(memory)) {}
  Status step_ends(std::size_t step, const OpCall& call) override;

 private:
  std::shared_ptr<MemoryOwner> memory_;
};

/// A device that wraps another one and checks every plan that it loads and every single op.
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
