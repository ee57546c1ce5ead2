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

/// Finds the tensor to bind for a plan's input, parameter or state. Nothing, for an input: the
/// executable keeps it. All the inputs that it keeps are one block, whose copy in the host's memory
/// is what binding() gives and what the next run takes over, in one copy to the device.
using TensorLookup = std::function<Result<std::optional<Tensor>>(const PlanBinding&)>;

/// What a device makes once of a plan's calls: chosen kernels, a captured graph. Devices implement
/// it; an Executable owns it, and keeps the calls that it was made of alive and where they are.
class Program {
 public:
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

/// A loaded plan. Move-only; keeps its plan, its tensors and (where the device is owned by shared
/// pointers) its device alive. One thread at a time may use it.
class Executable {
 public:
  Executable(Executable&&) noexcept = default;
  Executable& operator=(Executable&& other) noexcept;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable() = default;

  /// Copies the inputs that it keeps to the device and submits every step in order; device.h says
  /// what that is ordered with. Errors name the step and the op, here where the device finds them
  /// at once, otherwise where its results are waited for. After an error the next run works.
  /// kInterrupted from a device that was told when to stop: parameters are those before the run
  /// then; states (caches, sums of gradients) may have been written.
  Status run();
  /// Waits for everything submitted to the device; returns its first error.
  Status synchronize() const;
  /// The same, and brings the results of the last run to where result() looks, in one copy.
  Status fetch();

  /// Every later run tells `listener` of its steps. The same path runs, a step at a time.
  void add_listener(std::shared_ptr<StepListener> listener);
  void remove_listener(const StepListener& listener);

  const Plan& plan() const { return *plan_; }
  std::span<const OpCall> calls() const { return calls_; }
  /// The tensor bound under `name`, or the host's copy of an input that the executable keeps (zeros
  /// at first); kNotFound with the known names otherwise.
  Result<Tensor> binding(std::string_view name) const;
  /// The output `name`: a window of the arena, overwritten by the next run of any plan there.
  Result<Tensor> output(std::string_view name) const;
  /// The host's copy of the output `name`: what the last fetch() brought, until the next run of any
  /// plan with the same arena. kInvalidArgument for an output that is a bound tensor, which has a
  /// place of its own.
  Result<Tensor> result(std::string_view name);

 private:
  friend class Device;

  Executable() = default;
  /// What Device::load does for every device: memory, tensors and addresses; no program yet.
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

  std::shared_ptr<Device> kept_device_;  ///< Null for a device that nobody shares.
  Device* device_ = nullptr;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<DeviceBuffer> arena_;  ///< Perhaps that of other plans, too.
  std::vector<Tensor> bindings_;
  /// The inputs that it keeps, and the host's copy of them: the same block where the device works
  /// in the host's memory. Null where there are none.
  std::shared_ptr<DeviceBuffer> inputs_, host_inputs_;
  std::vector<std::int64_t> input_offsets_;  ///< By binding; -1: not kept here.
  /// The host's copy of the bytes of the arena that hold outputs; null until somebody wants it.
  std::shared_ptr<DeviceBuffer> host_results_;
  std::int64_t results_begin_ = 0;  ///< Where those bytes begin in the arena.
  std::vector<View> views_;
  std::vector<OpCall> calls_;
  std::unique_ptr<Program> program_;  ///< Gone before what it was made of.
  std::vector<std::shared_ptr<StepListener>> listeners_;
};

}  // namespace volta
