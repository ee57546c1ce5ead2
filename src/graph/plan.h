// Plan: a graph ready to run. Plain data: ops in order, and for every operand the place of its
// bytes, either in the plan's one arena or in a tensor that the caller binds by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/backend.h"
#include "graph/graph.h"

namespace [[gnu::visibility("default")]] volta {

/// Where an operand lies.
struct PlanOperand {
  TensorSpec spec;
  std::int32_t binding = -1;  ///< Index into Plan::bindings, or -1: in the arena.
  std::int64_t offset = 0;    ///< Bytes into the arena (or the bound tensor).
  bool operator==(const PlanOperand&) const = default;
};

struct PlanStep {
  Op op;
  std::vector<PlanOperand> inputs;
  std::vector<PlanOperand> outputs;
  std::int64_t workspace_offset = 0;  ///< Into the arena.
  std::int64_t workspace_bytes = 0;
  std::string label;
  std::size_t node = 0;  ///< Of the graph that the plan was made from.
  /// Steps of one stream run in the order of the plan. Steps of different streams may run at the
  /// same time and in any order, but none begins before those that it waits for have ended.
  std::int32_t stream = 0;
  std::vector<std::size_t> waits{};  ///< Earlier steps of other streams, by their places here.
};

/// A tensor the caller supplies: input, parameter, state, or a constant of the graph.
struct PlanBinding {
  std::string name;
  ValueKind kind = ValueKind::kInput;
  TensorSpec spec;
  bool written = false;  ///< Some step writes it.
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
  std::int64_t arena_bytes_unshared = 0;  ///< What it would be without sharing; for reports.
};

/// Alignment of everything in the arena.
inline constexpr std::int64_t kArenaAlignment = 64;

/// Verifies the graph and gives every intermediate a place: live ranges, in-place outputs where
/// may_alias allows it, Reshape for free, best-fit with the largest first. Outputs of the graph
/// keep their place to the end, and lie together. No two values that live at the same time overlap,
/// in whatever order the streams of the backend run: memory passes from a value to another one only
/// where the steps of the first have always ended before the second is made.
Result<Plan> make_plan(const Graph& graph, const Backend& backend);

/// The graph in Graphviz's language, each box with what its step costs and where its results lie.
/// The plan must have been made from this graph.
std::string to_dot(const Graph& graph, const Plan& plan);
/// The plan as text: steps, shapes, arena offsets.
std::string to_text(const Plan& plan);
/// What a step costs.
OpCost step_cost(const PlanStep& step);
/// The plan as JSON: bindings (constants with their data in hexadecimal), steps with op,
/// attributes, label, shapes, flops, bytes, offsets; outputs.
std::string to_json(const Plan& plan);
/// The plan that to_json() wrote. `what` names the text in messages. The text may come from a
/// stranger: kInvalidFile for what is not JSON, lacks a member, names an op, field or binding that
/// does not exist, holds a step that infer refuses, or lies outside the arena. Numbers that follow
/// from others (costs, sizes) are not read.
Result<Plan> plan_from_json(std::string_view text, std::string_view what);

}  // namespace volta
