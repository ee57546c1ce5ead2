// Device: what runs ops. It owns memory, says what it supports, runs one op or a whole plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/backend.h"
#include "graph/plan.h"
#include "ops/op.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace volta {

/// One op with the addresses of everything it touches, all in the device's memory.
struct OpCall {
  const Op* op = nullptr;
  std::span<const View> inputs = {};
  std::span<const View> outputs = {};
  std::span<std::byte> workspace = {};
  std::string_view label = {};
  /// Whether the work may be given up before this call: of a plan's run, no step before it has
  /// changed a parameter. Calls that prepare whole weights (Cast, Encode) may be given up in
  /// between, too, and leave their outputs unfinished.
  bool may_stop = false;
};

/// "MatMul{transpose_b} 'h.0.attn'": how errors name a call.
std::string describe(const OpCall& call);

struct DeviceInfo {
  std::string id;                 ///< "cpu", "cuda:0"; equal ids mean the same device.
  std::string name;               ///< "AMD EPYC ...", for people.
  std::string isa;                ///< "avx512", "avx2", "sse4", "sm_90".
  int threads = 1;                ///< CPU threads it uses.
  std::int64_t memory_bytes = 0;  ///< That this process may fill: a container's limit counts.
};

class BoundPlan;

/// Nothing but an address of its own; who keeps it can tell a device from its successors.
struct DeviceIdentity {};

/// Abstract device. Proxies (profiling, checking) wrap another one and forward.
/// One device may be used from several threads as long as each runs its own BoundPlan.
class Device : public Backend {
 public:
  virtual DeviceInfo info() const = 0;
  /// The same object for the same device, also when proxies wrap it, and for no other one ever: a
  /// plan is bound for one device's kernels and threads.
  virtual const std::shared_ptr<const DeviceIdentity>& identity() const { return identity_; }
  /// Who owns this device's memory.
  virtual const std::shared_ptr<MemoryOwner>& memory() const = 0;
  /// Runs one op whose views and workspace fit it (they come from a plan bound for this device, or
  /// are as large as workspace_bytes() says); that is not checked again. Fails only for
  /// reasons of the device, or when an index tensor holds a value out of range; the error names
  /// the op and its label.
  virtual Status run(const OpCall& call) = 0;
  /// Runs every step in order. The default loops over run(); its errors name the step.
  /// kInvalidArgument when the plan was bound for another device. kInterrupted from a device that
  /// was told when to stop: parameters are those before the run then; states (caches, sums of
  /// gradients) may have been written.
  virtual Status execute(BoundPlan& plan);
  /// Whether the work on this device is to be given up: what its owner said when it was made (see
  /// CpuDeviceOptions::interrupted). Long work beside plans asks it between blocks of some
  /// milliseconds, as check_interrupted() does: loading, rounding and checking weights.
  virtual bool interrupted() const { return false; }
  /// Waits for everything submitted; returns the first asynchronous error.
  virtual Status synchronize() { return {}; }

  /// What beside the instruction set fixes the bits of this op's results here, e.g.
  /// "MatMul: one sum over K"; empty when nothing does. Checkpoints record
  /// it, so that a resumed run can tell whether it goes on bit for bit.
  virtual std::string kernel_parameters(const Op&, std::span<const TensorSpec> /*inputs*/) const {
    return {};
  }

  // Backend, in terms of the above. evaluate() takes no op that writes its inputs.
  Result<std::vector<Tensor>> evaluate(const Op& op, std::span<const Tensor> inputs) override;
  Encoding preferred_encoding(const Op&, std::size_t, const TensorSpec&) const override {
    return {};
  }

 private:
  std::shared_ptr<const DeviceIdentity> identity_ = std::make_shared<const DeviceIdentity>();
};

/// kInterrupted when the work on this device is to be given up.
Status check_interrupted(const Device& device);

/// Finds the tensor to bind for a plan's input, parameter or state.
using TensorLookup = std::function<Result<Tensor>(const PlanBinding&)>;

/// A plan with memory: the arena, the bound tensors and every address resolved, so that executing
/// it allocates nothing. Move-only; keeps its plan and tensors alive.
class BoundPlan {
 public:
  /// Allocates the arena on `device`, copies the plan's constants there, and asks `lookup` for
  /// every input, parameter and state; specs must match exactly, memory must be the device's, and
  /// what the plan writes must not overlap anything else. kInvalidArgument for a plan made for
  /// another device, whose kernels cannot run its steps in the workspace they have.
  static Result<BoundPlan> bind(std::shared_ptr<const Plan> plan, Device& device,
                                const TensorLookup& lookup);

  /// kInvalidArgument unless this is the device that the plan was bound for, or a proxy of it.
  Status check_device(const Device& device) const;

  const Plan& plan() const { return *plan_; }
  /// The same plan, for who must tell plans apart after they are gone (a proxy's cache).
  const std::shared_ptr<const Plan>& shared_plan() const { return plan_; }
  std::span<const OpCall> calls() const { return calls_; }
  /// The tensor bound under `name`; kNotFound with the known names otherwise.
  Result<Tensor> binding(std::string_view name) const;
  /// The output `name`: a window of the arena, overwritten by the next run.
  Result<Tensor> output(std::string_view name) const;

 private:
  BoundPlan() = default;
  void resolve_calls();
  View view_of(const PlanOperand& operand) const;

  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const DeviceIdentity> device_;
  std::shared_ptr<DeviceBuffer> arena_;
  std::vector<Tensor> bindings_;
  std::vector<View> views_;
  std::vector<OpCall> calls_;
};

}  // namespace volta
