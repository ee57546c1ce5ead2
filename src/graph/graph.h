// Graph: a list of nodes, each with an op, in an order in which they can run. Building, automatic
// differentiation and passes all work on this one structure. It knows no device, and constants are
// the only data that it holds.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/op.h"
#include "ops/rules.h"
#include "tensor/spec.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

/// The origin of a value and the owner of its memory.
enum class ValueKind : std::uint8_t {
  kInput,         ///< Written by the host before a run.
  kParameter,     ///< A weight, bound by name; trained, or constant during a run.
  kState,         ///< Written by ops and kept between runs: optimiser state, caches.
  kConstant,      ///< Data that the graph itself holds.
  kIntermediate,  ///< Computed by a node.
};

/// "input", "parameter", "state", "constant" or "intermediate".
std::string_view kind_name(ValueKind kind);

struct Value {
  ValueKind kind = ValueKind::kIntermediate;
  TensorSpec spec;
  std::string name;            ///< Unique; empty for intermediates.
  std::int32_t producer = -1;  ///< The node that computes it; -1 unless kIntermediate.
  Tensor constant;             ///< The data of a kConstant.
};

struct Node {
  Op op;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::string label;  ///< Its scope when it was added, e.g. "h.0.attn"; for dumps and profiles.
};

struct GraphOutput {
  std::string name;
  ValueId value;
};

class Graph final : public GraphBuilder {
 public:
  // Building. Names must be non-empty and unique; specs are checked.
  Result<ValueId> input(std::string name, const TensorSpec& spec);
  Result<ValueId> parameter(std::string name, const TensorSpec& spec);
  Result<ValueId> state(std::string name, const TensorSpec& spec);
  Result<ValueId> constant(std::string name, Tensor data);
  Result<std::vector<ValueId>> add(const Op& op, std::span<const ValueId> inputs) override;
  Result<ValueId> filled(const Shape& shape, float value) override;
  /// Makes a value an output, which can be read by this name after a run. A value may have several
  /// such names.
  Status output(std::string name, ValueId value);
  /// Sets the label of the nodes that are added from now on.
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  const std::string& scope() const { return scope_; }

  // Reading.
  TensorSpec spec(ValueId value) const override;
  std::span<const Value> values() const { return values_; }
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const GraphOutput> outputs() const { return outputs_; }
  const Value& value(ValueId id) const { return values_[static_cast<std::size_t>(id.index)]; }
  std::optional<ValueId> find(std::string_view name) const;
  bool contains(ValueId id) const {
    return id.index >= 0 && static_cast<std::size_t>(id.index) < values_.size();
  }

 private:
  Result<ValueId> named(ValueKind kind, std::string name, const TensorSpec& spec);
  bool holds(ValueId value, const TensorSpec& spec, float number) const;

  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<GraphOutput> outputs_;
  std::string scope_;
  std::map<std::string, ValueId, std::less<>> names_;
};

/// Checks every invariant of a graph: values exist and are computed before they are read, specs are
/// those that infer returns, only states and parameters are written, names are unique. Runs after
/// each pass.
Status verify(const Graph& graph);

/// Appends the nodes that compute d(loss)/d(wrt), and returns the gradients in the order of `wrt`.
/// `loss` must be f32 with one element and computed by a node. The gradient of a value in `wrt` is
/// zeros if the loss does not depend on it.
Result<std::vector<ValueId>> differentiate(Graph& graph, ValueId loss,
                                           std::span<const ValueId> wrt);

/// The graph as text with shapes, one node per line; stable, for people and golden tests.
std::string to_text(const Graph& graph);
/// The graph in Graphviz's language.
std::string to_dot(const Graph& graph);

}  // namespace volta
