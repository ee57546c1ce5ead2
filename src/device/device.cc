// What all devices share: loading a plan, and evaluating one op for a pass.
#include "device/device.h"

#include <fmt/format.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "device/tensor_ops.h"
#include "ops/rules.h"

namespace volta {

namespace {

// For devices that prepare nothing for a plan.
class StepwiseProgram final : public Program {
 public:
  StepwiseProgram(Device& device, std::span<const OpCall> calls)
      : Program(calls.size()), device_(device), calls_(calls) {}
  Status submit_step(std::size_t step) override { return device_.run(calls_[step]); }

 private:
  Device& device_;
  std::span<const OpCall> calls_;
};

}  // namespace

std::string describe(const OpCall& call) {
  if (call.label.empty()) return to_string(*call.op);
  return fmt::format("{} '{}'", to_string(*call.op), call.label);
}

Result<Executable> Device::load_plan(std::shared_ptr<const Plan> plan, const TensorLookup& lookup,
                                     std::shared_ptr<DeviceBuffer> arena) {
  VOLTA_TRY(Executable executable,
            Executable::bind(std::move(plan), *this, lookup, std::move(arena)));
  VOLTA_TRY(executable.program_, compile(executable.calls_));
  return executable;
}

Result<std::unique_ptr<Program>> Device::compile(std::span<const OpCall> calls) {
  return std::make_unique<StepwiseProgram>(*this, calls);
}

Status check_interrupted(const Device& device) {
  if (!device.interrupted()) return {};
  return fail(ErrorCode::kInterrupted, "interrupted");
}

Result<std::vector<Tensor>> Device::evaluate(const Op& op, std::span<const Tensor> inputs) {
  if (writes(op, inputs.size()) != 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} writes its inputs and has no value of its own to evaluate", to_string(op)));
  }
  std::vector<Tensor> here;
  here.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    VOLTA_TRY(Tensor copy, input.clone_to(memory()));
    here.push_back(std::move(copy));
  }
  VOLTA_TRY(std::vector<Tensor> outputs, tensor_ops::apply(*this, op, here));
  for (Tensor& output : outputs) {
    VOLTA_TRY(output, output.clone_to(host_memory()));
  }
  return outputs;
}

}  // namespace volta
