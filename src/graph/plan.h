// Plan: a graph that is ready to run, as plain data. It lists the ops in order. For every operand
// it gives the place of its bytes, either in the plan's one arena or in a tensor that the caller
// binds by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/backend.h"
#include "graph/graph.h"

namespace [[gnu::visibility("default")]] volta {

/// The place of an operand in memory.
struct PlanOperand {
  TensorSpec spec;
  std::int32_t binding = -1;  ///< Index into Plan::bindings; -1 for the arena.
  std::int64_t offset = 0;    ///< In bytes, from the start of the arena or tensor.
  bool operator==(const PlanOperand&) const = default;
};

struct PlanStep {
  Op op;
  std::vector<PlanOperand> inputs;
  std::vector<PlanOperand> outputs;
  std::int64_t workspace_offset = 0;  ///< In bytes, from the start of the arena.
  std::int64_t workspace_bytes = 0;
  std::string label;
  std::size_t node = 0;  ///< The index of its node in the planned graph.
  /// Steps of one stream run in the order of the plan. Steps of different streams may run at the
  /// same time and in any order, but a step begins only after all the steps in `waits` have ended.
  std::int32_t stream = 0;
  std::vector<std::size_t> waits{};  ///< Indices of earlier steps in other streams.
};

/// A tensor outside the arena: an input, parameter or state, which the caller binds, or a constant
/// of the graph.
struct PlanBinding {
  std::string name;
  ValueKind kind = ValueKind::kInput;
  TensorSpec spec;
  bool written = false;  ///< Whether some step writes it.
  Tensor constant;       ///< The data of a kConstant.
};

struct PlanOutput {
  std::string name;
  PlanOperand operand;
};

struct Plan {
  std::vector<PlanStep> steps;
  std::vector<PlanBinding> bindings;
  std::vector<PlanOutput> outputs;
  std::int64_t arena_bytes = 0;
  std::int64_t arena_bytes_unshared = 0;  ///< The size if no memory were shared; for reports.
};

/// Alignment of everything in the arena.
inline constexpr std::int64_t kArenaAlignment = 64;

/// Verifies the graph and places every intermediate value in the arena. It computes live ranges,
/// lets an output take the memory of an input if may_alias allows it, lets a Reshape share the
/// memory of its input, and places blocks by best fit, the largest first. Outputs of the graph keep
/// their places to the end of the run and are adjacent. Values that are needed at the same time
/// never overlap, in whatever order the streams of the backend run: except in place, a value takes
/// the memory of another one only if all steps that use the other one have ended by then.
Result<Plan> make_plan(const Graph& graph, const Backend& backend);

/// The graph in Graphviz's language. Each box also shows the cost of its step and the places of its
/// results. The plan must have been made from this graph.
std::string to_dot(const Graph& graph, const Plan& plan);
/// The plan as text: steps, shapes, arena offsets.
std::string to_text(const Plan& plan);
/// The cost of a step.
OpCost step_cost(const PlanStep& step);
/// The plan as JSON: bindings (constants with their data in hexadecimal), steps with op,
/// attributes, label, shapes, flops, bytes, offsets; outputs.
std::string to_json(const Plan& plan);
/// Reads a plan that to_json() wrote. `what` names the text in messages. The text is untrusted:
/// kInvalidFile if it is not JSON, lacks a member, names an unknown op, field or binding, has a
/// step that infer rejects, or an operand outside the arena or its binding. Numbers that can be
/// computed from others (costs, sizes) are not read.
Result<Plan> plan_from_json(std::string_view text, std::string_view what);

}  // namespace volta
