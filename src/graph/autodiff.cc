// Reverse-mode differentiation: walks backwards over the nodes between `wrt` and the loss, and lets
// the rule of each op append the gradient. The graph alone determines the sums and their order. The
// gradient of a float value that a node computes has the type of the value. The gradients of all
// other values, such as parameters and inputs, are f32.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "graph/graph.h"

namespace volta {
namespace {

class Differentiator {
 public:
  /// Works on `graph`. The nodes that it has now are the forward pass.
  Differentiator(Graph& graph, ValueId loss, std::span<const ValueId> wrt)
      : graph_(graph),
        loss_(loss),
        node_count_(graph.nodes().size()),
        depends_(graph.values().size()),
        gradients_(graph.values().size()) {
    for (const ValueId id : wrt) depends_[index(id)] = true;
  }

  Status run() {
    find_path();
    VOLTA_TRY(check_effects_on_path());
    VOLTA_TRY(gradients_[index(loss_)], graph_.filled(graph_.spec(loss_).shape, 1.0f));
    for (std::size_t i = node_count_; i-- > 0;) {
      if (on_path_[i]) VOLTA_TRY(visit(i));
    }
    return {};
  }

  /// The gradient of `value`; zeros if the loss does not depend on it.
  Result<ValueId> gradient_of(ValueId value) {
    ValueId& known = gradients_[index(value)];
    if (!known.valid()) {
      VOLTA_TRY(known, graph_.filled(graph_.spec(value).shape, 0.0f));
      VOLTA_TRY(known, converted(known, gradient_type(value)));
    }
    return known;
  }

 private:
  static std::size_t index(ValueId id) { return static_cast<std::size_t>(id.index); }

  DType gradient_type(ValueId value) const {
    const Value& known = graph_.value(value);
    const bool typed = known.kind == ValueKind::kIntermediate && is_float(known.spec.dtype);
    return typed ? known.spec.dtype : DType::kF32;
  }

  Result<ValueId> converted(ValueId value, DType dtype) {
    if (graph_.spec(value).dtype == dtype) return value;
    return graph_.add_one(Cast{dtype}, {value});
  }

  /// A node is on the path if the loss depends on it and one of its inputs is a `wrt` or depends on
  /// one. A node that computes a `wrt` is not on the path, unless one of its inputs depends on
  /// another `wrt`.
  void find_path() {
    on_path_.resize(node_count_);
    for (std::size_t i = 0; i < node_count_; ++i) {
      const Node& node = graph_.nodes()[i];
      on_path_[i] =
          std::ranges::any_of(node.inputs, [&](ValueId id) { return depends_[index(id)]; });
      if (!on_path_[i]) continue;
      for (const ValueId id : node.outputs) depends_[index(id)] = true;
    }
    std::vector<bool> reaches(depends_.size());
    reaches[index(loss_)] = true;
    for (std::size_t i = node_count_; i-- > 0;) {
      const Node& node = graph_.nodes()[i];
      on_path_[i] = on_path_[i] && std::ranges::any_of(node.outputs, [&](ValueId id) {
                      return reaches[index(id)];
                    });
      if (!on_path_[i]) continue;
      for (const ValueId id : node.inputs) reaches[index(id)] = true;
    }
  }

  /// Rejects forward nodes that read a value which some node writes. The backward nodes read the
  /// same values, but run after all existing nodes, when the value has changed.
  Status check_effects_on_path() const {
    std::vector<std::int32_t> writer(depends_.size(), -1);
    for (std::size_t i = 0; i < node_count_; ++i) {
      const Node& node = graph_.nodes()[i];
      const std::uint32_t written = writes(node.op, node.inputs.size());
      for (std::size_t j = 0; j < node.inputs.size(); ++j) {
        if (writes_input(written, j)) writer[index(node.inputs[j])] = static_cast<int>(i);
      }
    }
    for (std::size_t i = 0; i < node_count_; ++i) {
      if (!on_path_[i]) continue;
      for (const ValueId id : graph_.nodes()[i].inputs) {
        if (writer[index(id)] < 0) continue;
        const Node& other = graph_.nodes()[static_cast<std::size_t>(writer[index(id)])];
        return fail(
            ErrorCode::kInvalidArgument,
            fmt::format("cannot differentiate {}: it reads '{}', which {} writes; "
                        "differentiate before adding what writes it",
                        describe(graph_.nodes()[i]), graph_.value(id).name, describe(other)));
      }
    }
    return {};
  }

  static std::string describe(const Node& node) {
    return node.label.empty() ? std::string(op_name(node.op))
                              : fmt::format("{} {}", node.label, op_name(node.op));
  }

  Status visit(std::size_t i) {
    const Node node = graph_.nodes()[i];  // A copy, because the rule appends to the graph.
    std::vector<ValueId> output_grads;
    for (const ValueId id : node.outputs) output_grads.push_back(gradients_[index(id)]);
    VOLTA_TRY(auto wanted, try_make_array<bool>(static_cast<std::int64_t>(node.inputs.size())));
    for (std::size_t j = 0; j < node.inputs.size(); ++j) {
      wanted[static_cast<std::int64_t>(j)] = depends_[index(node.inputs[j])];
    }
    graph_.set_scope(node.label.empty() ? "grad" : node.label + ".grad");
    auto status = apply_rule(node, output_grads, wanted.span());
    if (!status) {
      return std::unexpected(
          std::move(status).error().with_context("gradient of " + describe(node)));
    }
    return {};
  }

  Status apply_rule(const Node& node, std::span<const ValueId> output_grads,
                    std::span<const bool> wanted) {
    std::vector<DType> types;
    for (const ValueId input : node.inputs) types.push_back(gradient_type(input));
    VOLTA_TRY(const Gradients grads, gradient(node.op, {.graph = graph_,
                                                        .inputs = node.inputs,
                                                        .outputs = node.outputs,
                                                        .output_grads = output_grads,
                                                        .wanted = wanted,
                                                        .types = types}));
    if (grads.size() != node.inputs.size()) {
      return fail(ErrorCode::kInternal, fmt::format("its rule gives {} gradients for {} inputs",
                                                    grads.size(), node.inputs.size()));
    }
    for (std::size_t j = 0; j < grads.size(); ++j) {
      if (!wanted[j]) continue;
      if (!grads[j].valid()) return no_gradient(node, j);
      VOLTA_TRY(accumulate(node.inputs[j], grads[j]));
    }
    return {};
  }

  /// Reports a missing gradient, for example of an index that is computed from a `wrt`. Taking it
  /// as zero would hide the mistake.
  Status no_gradient(const Node& node, std::size_t input) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("no gradient flows to its input {}, {}, although that depends on what "
                            "the loss is differentiated by",
                            input, to_string(graph_.spec(node.inputs[input]))));
  }

  /// Adds the contributions of several uses in the order in which they are computed, which is the
  /// last use first.
  Status accumulate(ValueId value, ValueId contribution) {
    if (graph_.spec(contribution).shape != graph_.spec(value).shape) {
      return fail(ErrorCode::kInternal,
                  fmt::format("the gradient of {} has the shape {}", to_string(graph_.spec(value)),
                              to_string(graph_.spec(contribution).shape)));
    }
    VOLTA_TRY(contribution, converted(contribution, gradient_type(value)));
    ValueId& sum = gradients_[index(value)];
    if (!sum.valid()) {
      sum = contribution;
      return {};
    }
    VOLTA_TRY(sum, graph_.add_one(Binary{BinaryKind::kAdd}, {sum, contribution}));
    return {};
  }

  Graph& graph_;
  ValueId loss_;
  std::size_t node_count_;          ///< The number of nodes of the forward pass.
  std::vector<bool> depends_;       ///< By value: whether it depends on a `wrt`.
  std::vector<bool> on_path_;       ///< By node.
  std::vector<ValueId> gradients_;  ///< By value; invalid if zero so far.
};

Status check_arguments(const Graph& graph, ValueId loss, std::span<const ValueId> wrt) {
  if (!graph.contains(loss)) {
    return fail(ErrorCode::kInvalidArgument, "the loss is no value of this graph");
  }
  const Value& value = graph.value(loss);
  if (value.kind != ValueKind::kIntermediate) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the loss '{}' is a given {}; it must be made by the graph", value.name,
                            kind_name(value.kind)));
  }
  if (value.spec.dtype != DType::kF32 || value.spec.shape.elements() != 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the loss is {}; it must be f32 with one element: reduce it first",
                            to_string(value.spec)));
  }
  for (std::size_t i = 0; i < wrt.size(); ++i) {
    if (!graph.contains(wrt[i])) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("wrt[{}] is no value of this graph", i));
    }
    if (!is_float(graph.spec(wrt[i]).dtype)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("wrt[{}] '{}' is {}: only floats have gradients", i,
                              graph.value(wrt[i]).name, to_string(graph.spec(wrt[i]))));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<ValueId>> differentiate(Graph& graph, ValueId loss,
                                           std::span<const ValueId> wrt) {
  VOLTA_TRY(check_arguments(graph, loss, wrt));
  Graph extended = graph;  // A copy, so that an error leaves the caller's graph unchanged.
  Differentiator differentiator(extended, loss, wrt);
  VOLTA_TRY(differentiator.run());
  std::vector<ValueId> result;
  for (const ValueId id : wrt) {
    VOLTA_TRY(const ValueId gradient, differentiator.gradient_of(id));
    result.push_back(gradient);
  }
  extended.set_scope(graph.scope());
  graph = std::move(extended);
  return result;
}

}  // namespace volta
