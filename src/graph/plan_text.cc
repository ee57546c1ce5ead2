// A plan for people (text) and for programs (JSON).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "graph/plan.h"

namespace volta {
namespace {

/// "w f32[8, 8]" for a bound tensor, "@64 f32[2, 8]" for bytes of the arena.
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

OpCost step_cost(const PlanStep& step) {
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  for (const PlanOperand& operand : step.inputs) inputs.push_back(operand.spec);
  for (const PlanOperand& operand : step.outputs) outputs.push_back(operand.spec);
  return cost(step.op, inputs, outputs);
}

void write_spec(JsonWriter& json, const TensorSpec& spec) {
  json.field("dtype", dtype_name(spec.dtype)).key("shape").begin_array();
  for (int axis = 0; axis < spec.shape.rank(); ++axis) json.value(spec.shape[axis]);
  json.end_array();
}

/// The members of an operand: where it lies and what it is.
void write_operand(JsonWriter& json, const Plan& plan, const PlanOperand& operand) {
  if (operand.binding >= 0) {
    json.field("binding", plan.bindings[static_cast<std::size_t>(operand.binding)].name);
  }
  json.field("offset", operand.offset).field("bytes", operand.spec.bytes());
  write_spec(json, operand.spec);
}

void write_operands(JsonWriter& json, const Plan& plan, std::string_view key,
                    const std::vector<PlanOperand>& operands) {
  json.key(key).begin_array();
  for (const PlanOperand& operand : operands) {
    json.begin_object();
    write_operand(json, plan, operand);
    json.end_object();
  }
  json.end_array();
}

void write_step(JsonWriter& json, const Plan& plan, const PlanStep& step) {
  const OpCost work = step_cost(step);
  json.begin_object()
      .field("op", op_name(step.op))
      .field("attributes", to_string(step.op))
      .field("label", step.label)
      .field("flops", work.flops)
      .field("bytes", work.bytes);
  write_operands(json, plan, "inputs", step.inputs);
  write_operands(json, plan, "outputs", step.outputs);
  json.field("workspace_offset", step.workspace_offset)
      .field("workspace_bytes", step.workspace_bytes)
      .end_object();
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
    fmt::format_to(out, "  # {}{}{} flops, {} bytes\n", step.label, step.label.empty() ? "" : ": ",
                   work.flops, work.bytes);
  }
  for (const PlanOutput& output : plan.outputs) {
    fmt::format_to(out, "output {} = {}\n", output.name, describe(plan, output.operand));
  }
  return text;
}

std::string to_json(const Plan& plan) {
  JsonWriter json;
  json.begin_object()
      .field("arena_bytes", plan.arena_bytes)
      .field("arena_bytes_unshared", plan.arena_bytes_unshared);
  json.key("bindings").begin_array();
  for (const PlanBinding& binding : plan.bindings) {
    json.begin_object().field("name", binding.name).field("kind", kind_name(binding.kind));
    write_spec(json, binding.spec);
    json.field("bytes", binding.spec.bytes()).field("written", binding.written).end_object();
  }
  json.end_array().key("steps").begin_array();
  for (const PlanStep& step : plan.steps) write_step(json, plan, step);
  json.end_array().key("outputs").begin_array();
  for (const PlanOutput& output : plan.outputs) {
    json.begin_object().field("name", output.name);
    write_operand(json, plan, output.operand);
    json.end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

}  // namespace volta
