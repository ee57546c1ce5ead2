// The base of all passes: copies a graph node by node into a new graph, while the pass replaces
// some nodes. Keeps the order of the nodes (and so of their effects), the labels and the names.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"

namespace volta {

class Rewriter {
 public:
  /// Starts a copy of `source`, which must outlive this object. Inputs, parameters and states are
  /// copied at once, even if unused, because they are the graph's interface. Constants are copied
  /// when they are first used. `spec_of`, if given, returns the new specs of parameters.
  static Result<Rewriter> begin(const Graph& source,
                                const std::function<TensorSpec(const Value&)>& spec_of = {});

  /// The new graph.
  Graph& target() { return target_; }
  /// The value of the new graph that stands for a value of the source. The node that computes it
  /// must have been copied or replaced.
  Result<ValueId> at(ValueId source_value);
  Result<std::vector<ValueId>> at(std::span<const ValueId> source_values);
  /// From now on `target_value` stands for `source_value`.
  void replace(ValueId source_value, ValueId target_value);

  /// Copies a node unchanged.
  Status copy(const Node& node);
  /// Appends `op` on values of the target, with the label of `node`. Its outputs stand for those of
  /// `node`.
  Status replace_node(const Node& node, const Op& op, std::span<const ValueId> target_inputs);
  /// Adds a constant with an unused name like "<stem>.0".
  Result<ValueId> add_constant(const std::string& stem, Tensor data);
  /// Adds the outputs and returns the new graph.
  Result<Graph> finish();

 private:
  explicit Rewriter(const Graph& source)
      : source_(&source), values_(source.values().size()), next_suffix_(0) {}

  const Graph* source_;
  Graph target_;
  std::vector<ValueId> values_;  ///< Indexed by source value; invalid until copied.
  int next_suffix_;
};

}  // namespace volta
