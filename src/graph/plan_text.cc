// Prints a plan for people to read.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <string>
#include <vector>

#include "graph/plan.h"

namespace volta {
namespace {

/// "w f32[8, 8]" for a bound tensor, "@64 f32[2, 8]" for a tensor at offset 64 of the arena.
std::string describe(const Plan& plan, const PlanOperand& operand) {
  const std::string place = operand.binding >= 0
                                ? plan.bindings[static_cast<std::size_t>(operand.binding)].name
                                : fmt::format("@{}", operand.offset);
  return fmt::format("{} {}", place, to_string(operand.spec));
}

std::string describe(const Plan& plan, const std::vector<PlanOperand>& operands) {
  std::vector<std::string> texts;
  for (const PlanOperand& operand : operands) texts.push_back(describe(plan, operand));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

std::string to_text(const Plan& plan) {
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "arena {} bytes, {} without sharing\n", plan.arena_bytes,
                 plan.arena_bytes_unshared);
  for (const PlanBinding& binding : plan.bindings) {
    fmt::format_to(out, "{} {}: {}{}\n", kind_name(binding.kind), binding.name,
                   to_string(binding.spec), binding.written ? ", written" : "");
  }
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    const OpCost work = step_cost(step);
    fmt::format_to(out, "{}: {}{}{}({})", i, describe(plan, step.outputs),
                   step.outputs.empty() ? "" : " = ", to_string(step.op),
                   describe(plan, step.inputs));
    if (step.workspace_bytes > 0) {
      fmt::format_to(out, " workspace @{} {} bytes", step.workspace_offset, step.workspace_bytes);
    }
    if (step.stream != 0) fmt::format_to(out, " stream {}", step.stream);
    if (!step.waits.empty()) fmt::format_to(out, " after {}", fmt::join(step.waits, ", "));
    fmt::format_to(out, "  # {}{}{} flops, {} bytes\n", step.label, step.label.empty() ? "" : ": ",
                   work.flops, work.bytes);
  }
  for (const PlanOutput& output : plan.outputs) {
    fmt::format_to(out, "output {} = {}\n", output.name, describe(plan, output.operand));
  }
  return text;
}

OpCost step_cost(const PlanStep& step) {
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  for (const PlanOperand& operand : step.inputs) inputs.push_back(operand.spec);
  for (const PlanOperand& operand : step.outputs) outputs.push_back(operand.spec);
  return cost(step.op, inputs, outputs);
}

}  // namespace volta
