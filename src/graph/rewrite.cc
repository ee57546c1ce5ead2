#include "graph/rewrite.h"

#include <fmt/format.h>

#include <utility>

namespace volta {

Result<Rewriter> Rewriter::begin(const Graph& source,
                                 const std::function<TensorSpec(const Value&)>& spec_of) {
  Rewriter rewriter(source);
  Graph& target = rewriter.target_;
  for (std::size_t i = 0; i < source.values().size(); ++i) {
    const Value& value = source.values()[i];
    Result<ValueId> copy = ValueId{};
    if (value.kind == ValueKind::kInput) copy = target.input(value.name, value.spec);
    if (value.kind == ValueKind::kParameter) {
      copy = target.parameter(value.name, spec_of ? spec_of(value) : value.spec);
    }
    if (value.kind == ValueKind::kState) copy = target.state(value.name, value.spec);
    VOLTA_TRY(rewriter.values_[i], std::move(copy));
  }
  return rewriter;
}

Result<ValueId> Rewriter::at(ValueId source_value) {
  ValueId& known = values_[static_cast<std::size_t>(source_value.index)];
  if (known.valid()) return known;
  const Value& value = source_->value(source_value);
  if (value.kind != ValueKind::kConstant) {
    return fail(
        ErrorCode::kInternal,
        fmt::format("a pass reads value {} of a node that it has dropped", source_value.index));
  }
  VOLTA_TRY(known, target_.constant(value.name, value.constant));
  return known;
}

Result<std::vector<ValueId>> Rewriter::at(std::span<const ValueId> source_values) {
  std::vector<ValueId> result;
  result.reserve(source_values.size());
  for (const ValueId id : source_values) {
    VOLTA_TRY(const ValueId mapped, at(id));
    result.push_back(mapped);
  }
  return result;
}

void Rewriter::replace(ValueId source_value, ValueId target_value) {
  values_[static_cast<std::size_t>(source_value.index)] = target_value;
}

Status Rewriter::copy(const Node& node) {
  VOLTA_TRY(const auto inputs, at(node.inputs));
  return replace_node(node, node.op, inputs);
}

Status Rewriter::replace_node(const Node& node, const Op& op,
                              std::span<const ValueId> target_inputs) {
  target_.set_scope(node.label);
  VOLTA_TRY(const auto outputs, target_.add(op, target_inputs));
  for (std::size_t i = 0; i < node.outputs.size(); ++i) replace(node.outputs[i], outputs[i]);
  return {};
}

Result<ValueId> Rewriter::add_constant(const std::string& stem, Tensor data) {
  std::string name;
  do {
    name = fmt::format("{}.{}", stem, next_suffix_++);
  } while (target_.find(name) || source_->find(name));
  return target_.constant(std::move(name), std::move(data));
}

Result<Graph> Rewriter::finish() {
  for (const GraphOutput& output : source_->outputs()) {
    VOLTA_TRY(const ValueId id, at(output.value));
    VOLTA_TRY(target_.output(output.name, id));
  }
  target_.set_scope(source_->scope());
  return std::move(target_);
}

}  // namespace volta
