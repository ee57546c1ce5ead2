// Device: a backend that runs ops. It owns memory, reports what it supports, loads plans and runs
// single ops.
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
  std::string id;                 ///< "cpu" or "cuda:0". All CPU devices have the same id.
  std::string name;               ///< "AMD EPYC ...", for people to read.
  std::string isa;                ///< "avx512", "avx2", "sse4", "sm_90".
  int threads = 1;                ///< CPU threads it uses.
  std::int64_t memory_bytes = 0;  ///< What this process may use; a container's limit counts.
};

/// Abstract device. A proxy (device_proxy.h) wraps another device and forwards calls to it. Several
/// threads may use one device as long as each runs its own executables.
///
/// What a thread submits to a device (runs, single ops, copies to and from the host) takes effect
/// in the order of submission. Tensor::read and synchronize() wait for all submitted work and
/// return its first error. Only after such a wait may the host use an address to access memory that
/// the device wrote, or read what a submitted copy (Executable::copy_results) brings to it. Within
/// one run, steps that the plan puts into different streams may run in any order that their waits
/// allow. Work that is submitted later starts after all of them.
class Device : public Backend, public std::enable_shared_from_this<Device> {
 public:
  virtual DeviceInfo info() const = 0;
  /// The owner of this device's memory.
  virtual const std::shared_ptr<MemoryOwner>& memory() const = 0;
  /// The owner of the host memory to which results are copied: that of a GPU is such that copies
  /// run beside the host.
  virtual std::shared_ptr<MemoryOwner> result_memory() const { return host_memory(); }
  /// Binds a plan to memory of this device. It allocates the arena, copies the plan's constants,
  /// calls `lookup` for every input, parameter and state, and prepares once what every run needs.
  /// Specs must match exactly, memory must belong to the device, and memory that the plan writes
  /// must not overlap anything else. kInvalidArgument for a plan that was made for another device
  /// if this one lacks a kernel for a step or the step's workspace is too small; kOutOfMemory. A
  /// device that is not owned by a shared pointer must outlive its executables.
  ///
  /// If `arena` is given, the plan works in it. It must be a block of the device's memory with at
  /// least the plan's arena_bytes. Several plans may share an arena: a run of one of them
  /// overwrites what the runs of the others left there.
  Result<Executable> load(std::shared_ptr<const Plan> plan, const TensorLookup& lookup,
                          std::shared_ptr<DeviceBuffer> arena = nullptr) {
    return load_plan(std::move(plan), lookup, std::move(arena));
  }
  /// Submits one op. Its views and workspace must fit it: they come from an executable of this
  /// device, or the workspace is as large as workspace_bytes() returns. This is not checked again.
  /// Fails only if the device fails, if the work was interrupted (OpCall::may_stop), or if an index
  /// tensor holds a value out of range; that error names the op and its label.
  virtual Status run(const OpCall& call) = 0;
  /// Whether the work on this device should stop. The owner of the device decides with a callback
  /// (see CpuDeviceOptions::interrupted). Long work outside of plans, such as loading, rounding and
  /// checking weights, calls this between blocks of some milliseconds, as check_interrupted() does.
  virtual bool interrupted() const { return false; }
  /// Waits for all submitted work. Returns its first error that was not returned before.
  virtual Status synchronize() { return {}; }

  /// What determines the bits of this op's results here, apart from the instruction set, e.g.
  /// "MatMul: one sum over K". Empty if nothing does. Checkpoints record it, so that a resumed run
  /// can tell whether it continues bit for bit.
  virtual std::string kernel_parameters(const Op&, std::span<const TensorSpec> /*inputs*/) const {
    return {};
  }

  // Backend, implemented with the functions above. evaluate() refuses ops that write their inputs.
  Result<std::vector<Tensor>> evaluate(const Op& op, std::span<const Tensor> inputs) override;
  Encoding preferred_encoding(const Op&, std::size_t, const TensorSpec&) const override {
    return {};
  }

 protected:
  /// Implements load(). Devices that add to load() override this. `arena` may be null.
  virtual Result<Executable> load_plan(std::shared_ptr<const Plan> plan, const TensorLookup& lookup,
                                       std::shared_ptr<DeviceBuffer> arena);
  /// Prepares what the device keeps for a plan's calls. The calls live as long as the program. The
  /// default passes each step to run(), and is for devices whose run() returns when the op has
  /// ended: others need a program that waits in its destructor.
  virtual Result<std::unique_ptr<Program>> compile(std::span<const OpCall> calls);
};

/// kInterrupted if the work on this device should stop, otherwise success.
Status check_interrupted(const Device& device);

}  // namespace volta
