// Executable: a plan loaded on a device. It owns the plan's memory, every resolved address, and
// whatever the device makes once for a plan, so that a run repeats none of that work and allocates
// nothing. Device::load makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/op_call.h"
#include "graph/plan.h"
#include "tensor/buffer.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace [[gnu::visibility("default")]] volta {

class Device;

/// Finds the tensor to bind for a plan's input, parameter or state. For an input it may return
/// nothing: then the executable keeps that input itself. All inputs that it keeps are in one block.
/// binding() returns their copies in host memory, and the next run copies the block to the device
/// at once.
using TensorLookup = std::function<Result<std::optional<Tensor>>(const PlanBinding&)>;

/// What a device prepares once for a plan's calls: chosen kernels, a captured graph. Devices
/// implement it. An Executable owns it, and keeps the calls alive and at the same addresses.
class Program {
 public:
  /// Waits until the device uses neither the calls that were submitted nor the host's copy of their
  /// results. Both may be freed afterwards. An error stays for the next call that waits.
  virtual ~Program() = default;
  /// Submits every step in order. An error names the step ("step 2 of 14: ...").
  virtual Status submit();
  /// Submits one step; an error names the op.
  virtual Status submit_step(std::size_t step) = 0;

 protected:
  explicit Program(std::size_t steps) : steps_(steps) {}

 private:
  std::size_t steps_;
};

/// A loaded plan. Move-only. It keeps its plan, its tensors and (if the device is owned by shared
/// pointers) its device alive. Only one thread may use it at a time.
class Executable {
 public:
  Executable(Executable&&) noexcept = default;
  Executable& operator=(Executable&& other) noexcept;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable() = default;

  /// Copies the inputs that it keeps to the device and submits every step in order; device.h
  /// describes how this is ordered with other work. Errors name the step and the op. They are
  /// returned here if the device finds them at once, otherwise by the call that waits for the
  /// results. After an error the next run works. A device that was told to stop returns
  /// kInterrupted. Then no parameter has changed, but states (caches, sums of gradients) may have
  /// been written.
  Status run();
  /// Waits for everything submitted to the device; returns its first error.
  Status synchronize() const;
  /// Submits one copy of the results of the last run to where result() reads them. They are there
  /// once synchronize() has returned, which also reports an error of the copy.
  Status copy_results();
  /// copy_results(), then synchronize().
  Status fetch();
  /// From now on copy_results() copies these outputs, and perhaps others that lie between them in
  /// memory, and result() may give no others. Outputs that are bound tensors need no copy. To be
  /// called before the first of these; kNotFound for a name that the plan does not have.
  Status limit_results(std::span<const std::string_view> names);

  /// Calls `listener` for each step of every later run. Runs then wait after each step.
  void add_listener(std::shared_ptr<StepListener> listener);
  void remove_listener(const StepListener& listener);

  const Plan& plan() const { return *plan_; }
  std::span<const OpCall> calls() const { return calls_; }
  /// The tensor bound under `name`, or the host's copy of an input that the executable keeps
  /// (initially zeros). kNotFound, with the known names, if the plan binds no such tensor.
  Result<Tensor> binding(std::string_view name) const;
  /// The output `name`: a window of the arena. The next run of any plan in that arena overwrites
  /// it.
  Result<Tensor> output(std::string_view name) const;
  /// The host's copy of the output `name`, as copy_results() last copied it. It is valid until the
  /// next run of any plan with the same arena. kInvalidArgument for an output that is a bound
  /// tensor, because that has its own memory.
  Result<Tensor> result(std::string_view name);

 private:
  friend class Device;

  Executable() = default;
  /// The part of Device::load that all devices share: memory, tensors and addresses, but no
  /// program.
  static Result<Executable> bind(std::shared_ptr<const Plan> plan, Device& device,
                                 const TensorLookup& lookup, std::shared_ptr<DeviceBuffer> arena);
  Status bind_tensors(Device& device, const TensorLookup& lookup);
  Status place_inputs(Device& device);
  Status stage_results();
  Result<const PlanOperand*> find_output(std::string_view name) const;
  void resolve_calls();
  View view_of(const PlanOperand& operand) const;
  Status run_with_listeners();
  Status run_step_with_listeners(std::size_t step);

  std::shared_ptr<Device> kept_device_;  ///< Null if the device is not owned by a shared pointer.
  Device* device_ = nullptr;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<DeviceBuffer> arena_;  ///< Other plans may share it.
  std::vector<Tensor> bindings_;
  /// The block of inputs that the executable keeps, and the host's copy of it. Both are the same
  /// block if the device works in host memory. Null if there are none.
  std::shared_ptr<DeviceBuffer> inputs_, host_inputs_;
  std::vector<std::int64_t> input_offsets_;  ///< By binding; -1 if the executable does not keep it.
  /// The host's copy of the bytes of the arena that hold outputs; null until it is first needed.
  std::shared_ptr<DeviceBuffer> host_results_;
  std::int64_t results_begin_ = 0;                  ///< Where those bytes begin in the arena.
  std::vector<const PlanOperand*> wanted_results_;  ///< See limit_results(); empty for all.
  std::vector<View> views_;
  std::vector<OpCall> calls_;
  std::unique_ptr<Program> program_;  ///< Destroyed before the calls that it uses.
  std::vector<std::shared_ptr<StepListener>> listeners_;
};

}  // namespace volta
