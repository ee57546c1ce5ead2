// Device: what runs ops. It owns memory, says what it supports, loads plans and runs single ops.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/executable.h"
#include "device/op_call.h"
#include "graph/backend.h"
#include "graph/plan.h"
#include "ops/op.h"
#include "tensor/buffer.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

struct DeviceInfo {
  std::string id;                 ///< "cpu", "cuda:0"; equal ids mean the same device.
  std::string name;               ///< "AMD EPYC ...", for people.
  std::string isa;                ///< "avx512", "avx2", "sse4", "sm_90".
  int threads = 1;                ///< CPU threads it uses.
  std::int64_t memory_bytes = 0;  ///< That this process may fill: a container's limit counts.
};

/// Abstract device. Proxies (device_proxy.h) wrap another one and forward. One device may be used
/// from several threads as long as each runs its own executables.
///
/// What a thread submits to a device (runs, single ops, copies from the host) takes effect in the
/// order of submission; copies to the host (Tensor::read) and synchronize() wait for all of it, and
/// return the first error that it gave. Only then may the host touch what it wrote by address. Of
/// the steps of one run, those that a plan puts into different streams may run in any order that
/// its waits allow; whatever is submitted later comes after all of them.
class Device : public Backend, public std::enable_shared_from_this<Device> {
 public:
  virtual DeviceInfo info() const = 0;
  /// Who owns this device's memory.
  virtual const std::shared_ptr<MemoryOwner>& memory() const = 0;
  /// Gives a plan its memory here: allocates the arena, copies the plan's constants, asks `lookup`
  /// for every input, parameter and state, and makes once what its runs need. Specs must match
  /// exactly, memory must be the device's, and what the plan writes must not overlap anything else.
  /// kInvalidArgument for a plan made for another device, whose kernels cannot run its steps in
  /// the workspace they have; kOutOfMemory. A device that is not owned by a shared pointer must
  /// outlive its executables.
  ///
  /// With `arena`, a block of the device's memory with at least the plan's arena_bytes, the plan
  /// works there. Several plans may share one: a run of any of them overwrites what the runs of the
  /// others left there.
  Result<Executable> load(std::shared_ptr<const Plan> plan, const TensorLookup& lookup,
                          std::shared_ptr<DeviceBuffer> arena = nullptr) {
    return load_plan(std::move(plan), lookup, std::move(arena));
  }
  /// Submits one op whose views and workspace fit it (they come from an executable of this device,
  /// or are as large as workspace_bytes() says); that is not checked again. Fails only for
  /// reasons of the device, or when an index tensor holds a value out of range; the error names
  /// the op and its label.
  virtual Status run(const OpCall& call) = 0;
  /// Whether the work on this device is to be given up: what its owner said when it was made (see
  /// CpuDeviceOptions::interrupted). Long work beside plans asks it between blocks of some
  /// milliseconds, as check_interrupted() does: loading, rounding and checking weights.
  virtual bool interrupted() const { return false; }
  /// Waits for everything submitted; returns the first error that was not returned yet.
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

 protected:
  /// load(), for devices that add to it. `arena` may be null.
  virtual Result<Executable> load_plan(std::shared_ptr<const Plan> plan, const TensorLookup& lookup,
                                       std::shared_ptr<DeviceBuffer> arena);
  /// Makes what the device keeps of a plan's calls, which live as long as the program. The default
  /// hands each step to run().
  virtual Result<std::unique_ptr<Program>> compile(std::span<const OpCall> calls);
};

/// kInterrupted when the work on this device is to be given up.
Status check_interrupted(const Device& device);

}  // namespace volta
