// What every device does alike: run a plan step by step, and evaluate one op for a pass.
#include "device/device.h"

#include <fmt/format.h>

#include "device/tensor_ops.h"
#include "ops/rules.h"

namespace volta {

std::string describe(const OpCall& call) {
  if (call.label.empty()) return to_string(*call.op);
  return fmt::format("{} '{}'", to_string(*call.op), call.label);
}

Status Device::execute(BoundPlan& plan) {
  VOLTA_TRY(plan.check_device(*this));
  const std::span<const OpCall> calls = plan.calls();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Status status = run(calls[i]);
    if (!status) [[unlikely]] {
      return std::unexpected(std::move(status).error().with_context(
          fmt::format("step {} of {}", i + 1, calls.size())));
    }
  }
  return {};
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
