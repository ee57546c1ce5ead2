// Builds graphs. Every value and node is checked when it is added, so that an error appears at the
// line that adds it. Knows nothing of passes and plans.
#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "graph/verify.h"

namespace volta {
namespace {

/// filled() makes constants of up to this size. A larger value is a scalar that is expanded at run
/// time, so that graphs stay small for all shapes.
constexpr std::int64_t kMaxFilledBytes = 64 << 10;

}  // namespace

std::string_view kind_name(ValueKind kind) {
  switch (kind) {
    case ValueKind::kInput:
      return "input";
    case ValueKind::kParameter:
      return "parameter";
    case ValueKind::kState:
      return "state";
    case ValueKind::kConstant:
      return "constant";
    case ValueKind::kIntermediate:
      break;
  }
  return "intermediate";
}

Result<ValueId> Graph::named(ValueKind kind, std::string name, const TensorSpec& spec) {
  if (name.empty()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("a {} of type {} has no name: give it one",
                                                         kind_name(kind), to_string(spec)));
  }
  if (names_.contains(name)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} '{}': the graph already has a value of this name; choose another",
                            kind_name(kind), name));
  }
  if (auto status = check_spec(spec); !status) {
    return std::unexpected(
        std::move(status).error().with_context(fmt::format("{} '{}'", kind_name(kind), name)));
  }
  const ValueId id{static_cast<std::int32_t>(values_.size())};
  names_.emplace(name, id);
  values_.push_back({.kind = kind, .spec = spec, .name = std::move(name), .constant = {}});
  return id;
}

Result<ValueId> Graph::input(std::string name, const TensorSpec& spec) {
  return named(ValueKind::kInput, std::move(name), spec);
}

Result<ValueId> Graph::parameter(std::string name, const TensorSpec& spec) {
  return named(ValueKind::kParameter, std::move(name), spec);
}

Result<ValueId> Graph::state(std::string name, const TensorSpec& spec) {
  return named(ValueKind::kState, std::move(name), spec);
}

Result<ValueId> Graph::constant(std::string name, Tensor data) {
  VOLTA_TRY(const ValueId id, named(ValueKind::kConstant, std::move(name), data.spec()));
  values_.back().constant = std::move(data);
  return id;
}

Result<std::vector<ValueId>> Graph::add(const Op& op, std::span<const ValueId> inputs) {
  const auto at_scope = [&](Error error) {
    return std::unexpected(scope_.empty() ? std::move(error)
                                          : std::move(error).with_context(scope_));
  };
  std::vector<TensorSpec> specs;
  specs.reserve(inputs.size());
  for (const ValueId id : inputs) {
    if (!contains(id)) {
      return at_scope(
          Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: input {} is no value of this graph", op_name(op), specs.size())));
    }
    specs.push_back(value(id).spec);
  }
  auto outputs = infer(op, specs);
  if (!outputs) return at_scope(std::move(outputs).error());
  if (auto status = check_effects(op, inputs, values_); !status) {
    return at_scope(std::move(status).error());
  }

  Node node{.op = op, .inputs = {inputs.begin(), inputs.end()}, .outputs = {}, .label = scope_};
  for (const TensorSpec& spec : *outputs) {
    node.outputs.push_back(ValueId{static_cast<std::int32_t>(values_.size())});
    values_.push_back({.kind = ValueKind::kIntermediate,
                       .spec = spec,
                       .name = {},
                       .producer = static_cast<std::int32_t>(nodes_.size()),
                       .constant = {}});
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

bool Graph::holds(ValueId id, const TensorSpec& spec, float number) const {
  const Value& candidate = value(id);
  if (candidate.kind != ValueKind::kConstant || candidate.spec != spec) return false;
  const auto data = candidate.constant.values<float>();
  const auto same_bits = [&](float x) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(number);
  };
  return data && std::ranges::all_of(*data, same_bits);
}

Result<ValueId> Graph::filled(const Shape& shape, float number) {
  const TensorSpec spec{DType::kF32, shape};
  VOLTA_TRY(check_spec(spec));
  if (spec.bytes() > kMaxFilledBytes) {
    VOLTA_TRY(const ValueId scalar, filled(Shape(), number));
    return add_one(Expand{.shape = spec.shape}, {scalar});
  }
  // Equal constants are shared. The name describes the content. The loop skips values of the caller
  // that happen to have this name.
  std::string name = fmt::format("filled {} {}", number, to_string(spec.shape));
  for (auto known = find(name); known; known = find(name)) {
    if (holds(*known, spec, number)) return *known;
    name += '\'';
  }
  VOLTA_TRY(Tensor data, Tensor::empty(spec));
  VOLTA_TRY(const auto values, data.mutable_values<float>());
  std::ranges::fill(values, number);
  return constant(std::move(name), std::move(data));
}

Status Graph::output(std::string name, ValueId id) {
  if (name.empty()) {
    return fail(ErrorCode::kInvalidArgument, "an output of a graph has no name: give it one");
  }
  if (!contains(id)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("output '{}' is no value of this graph", name));
  }
  for (const GraphOutput& other : outputs_) {
    if (other.name == name) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the graph already has an output '{}'; choose another name", name));
    }
  }
  outputs_.push_back({std::move(name), id});
  return {};
}

TensorSpec Graph::spec(ValueId id) const { return value(id).spec; }

std::optional<ValueId> Graph::find(std::string_view name) const {
  const auto found = names_.find(name);
  if (found == names_.end()) return std::nullopt;
  return found->second;
}

}  // namespace volta
