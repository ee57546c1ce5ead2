// Checks every invariant of a graph. It relies only on infer and on the effects that ops declare.
#include "graph/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace volta {
namespace {

std::unexpected<Error> broken(std::string message) {
  return fail(ErrorCode::kInternal, std::move(message));
}

/// Verifies the parts of a graph, whose indices may be invalid.
class Verifier {
 public:
  Verifier(std::span<const Value> values, std::span<const Node> nodes,
           std::span<const GraphOutput> outputs)
      : values_(values), nodes_(nodes), outputs_(outputs) {}

  Status run() const {
    VOLTA_TRY(check_values());
    for (std::size_t i = 0; i < nodes_.size(); ++i) VOLTA_TRY(check_node(i));
    return check_outputs();
  }

 private:
  // A graph is verified after each pass, so the names in messages are made for errors only.
  std::unexpected<Error> broken_value(std::size_t index, std::string_view what) const {
    return broken(fmt::format("value {} '{}': {}", index, values_[index].name, what));
  }
  std::unexpected<Error> broken_node(std::size_t index, std::string_view what) const {
    return broken(fmt::format("{}: {}", name_of(index), what));
  }
  std::string name_of(std::size_t node) const {
    return fmt::format("node {} '{}' ({})", node, nodes_[node].label, op_name(nodes_[node].op));
  }

  const Value* find(ValueId id) const {
    const bool exists = id.valid() && static_cast<std::size_t>(id.index) < values_.size();
    return exists ? &values_[static_cast<std::size_t>(id.index)] : nullptr;
  }

  Status check_values() const {
    std::unordered_set<std::string_view> names;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const Value& value = values_[i];
      if (auto status = check_spec(value.spec); !status) {
        return broken_value(i, status.error().message());
      }
      if (value.kind == ValueKind::kIntermediate) {
        VOLTA_TRY(check_intermediate(i));
        continue;
      }
      if (value.producer != -1) return broken_value(i, "is made by a node");
      if (value.name.empty()) return broken_value(i, "has no name");
      if (!names.insert(value.name).second) {
        return broken_value(i, "another value has the same name");
      }
      if (value.kind == ValueKind::kConstant && value.constant.spec() != value.spec) {
        return broken_value(i, fmt::format("is {}, its data {}", to_string(value.spec),
                                           to_string(value.constant.spec())));
      }
    }
    return {};
  }

  Status check_intermediate(std::size_t index) const {
    const Value& value = values_[index];
    if (!value.name.empty()) {
      return broken_value(index, "an intermediate value has a name");
    }
    if (value.producer < 0 || static_cast<std::size_t>(value.producer) >= nodes_.size()) {
      return broken_value(index, "no node makes it");
    }
    const Node& producer = nodes_[static_cast<std::size_t>(value.producer)];
    const auto times =
        std::ranges::count(producer.outputs, static_cast<std::int32_t>(index), &ValueId::index);
    if (times != 1) {
      return broken_value(index, fmt::format("its node {} lists it {} times among its outputs",
                                             value.producer, times));
    }
    return {};
  }

  Status check_node(std::size_t index) const {
    const Node& node = nodes_[index];
    std::vector<TensorSpec> specs;
    for (const ValueId id : node.inputs) {
      const Value* input = find(id);
      if (input == nullptr) {
        return broken_node(index, fmt::format("input {} does not exist", specs.size()));
      }
      if (input->producer >= static_cast<std::int32_t>(index)) {
        return broken_node(index, fmt::format("reads value {} before node {} makes it", id.index,
                                              input->producer));
      }
      specs.push_back(input->spec);
    }
    auto expected = infer(node.op, specs);
    if (!expected) return std::unexpected(std::move(expected).error().with_context(name_of(index)));
    if (auto status = check_effects(node.op, node.inputs, values_); !status) {
      return std::unexpected(std::move(status).error().with_context(name_of(index)));
    }
    return check_results(index, *expected);
  }

  Status check_results(std::size_t index, std::span<const TensorSpec> expected) const {
    const Node& node = nodes_[index];
    if (node.outputs.size() != expected.size()) {
      return broken_node(index, fmt::format("has {} outputs, should have {}", node.outputs.size(),
                                            expected.size()));
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Value* output = find(node.outputs[i]);
      if (output == nullptr) {
        return broken_node(index, fmt::format("output {} does not exist", i));
      }
      if (output->producer != static_cast<std::int32_t>(index)) {
        return broken_node(
            index, fmt::format("output {} says that node {} makes it", i, output->producer));
      }
      if (output->spec != expected[i]) {
        return broken_node(index, fmt::format("output {} is {}, should be {}", i,
                                              to_string(output->spec), to_string(expected[i])));
      }
    }
    return {};
  }

  Status check_outputs() const {
    std::unordered_set<std::string_view> names;
    for (const GraphOutput& output : outputs_) {
      if (output.name.empty()) return broken("an output has no name");
      if (find(output.value) == nullptr) {
        return broken(fmt::format("output '{}' does not exist", output.name));
      }
      if (!names.insert(output.name).second) {
        return broken(fmt::format("two outputs are named '{}'", output.name));
      }
    }
    return {};
  }

  std::span<const Value> values_;
  std::span<const Node> nodes_;
  std::span<const GraphOutput> outputs_;
};

}  // namespace

Status check_effects(const Op& op, std::span<const ValueId> inputs, std::span<const Value> values) {
  const std::uint32_t written = writes(op, inputs.size());
  if (written == 0) return {};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!writes_input(written, i)) continue;
    const Value& value = values[static_cast<std::size_t>(inputs[i].index)];
    if (value.kind != ValueKind::kState && value.kind != ValueKind::kParameter) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: writes its input {}, which is the {} '{}'; only a state or a "
                              "parameter can be written",
                              op_name(op), i, kind_name(value.kind), value.name));
    }
    if (std::ranges::count(inputs, inputs[i]) != 1) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: writes '{}', which is another of its inputs too", op_name(op),
                              value.name));
    }
  }
  return {};
}

Status verify_parts(std::span<const Value> values, std::span<const Node> nodes,
                    std::span<const GraphOutput> outputs) {
  return Verifier(values, nodes, outputs).run();
}

Status verify(const Graph& graph) {
  return verify_parts(graph.values(), graph.nodes(), graph.outputs());
}

}  // namespace volta
