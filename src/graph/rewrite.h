// What every pass is made of: copies a graph node by node into a new one while the pass replaces
// some of it. Keeps the order of nodes (and so of effects), the labels and the names.
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
  /// Starts a copy of `source`, which must outlive this object. Inputs, parameters and states come
  /// over at once, used or not (they are what the graph promises); constants when first used.
  /// `spec_of`, where given, says what parameters look like from now on.
  static Result<Rewriter> begin(const Graph& source,
                                const std::function<TensorSpec(const Value&)>& spec_of = {});

  /// The graph being made.
  Graph& target() { return target_; }
  /// The new value that stands for a value of the source; what made it must have been copied.
  Result<ValueId> at(ValueId source_value);
  Result<std::vector<ValueId>> at(std::span<const ValueId> source_values);
  /// From now on `target_value` stands for `source_value`.
  void replace(ValueId source_value, ValueId target_value);

  /// Copies a node as it is.
  Status copy(const Node& node);
  /// Appends `op` on values of the target, to stand for the outputs of `node` and with its label.
  Status replace_node(const Node& node, const Op& op, std::span<const ValueId> target_inputs);
  /// A constant under a name like "<stem>.0" that is still free.
  Result<ValueId> add_constant(const std::string& stem, Tensor data);
  /// Names the outputs and hands out the new graph.
  Result<Graph> finish();

 private:
  explicit Rewriter(const Graph& source)
      : source_(&source), values_(source.values().size()), next_suffix_(0) {}

  const Graph* source_;
  Graph target_;
  std::vector<ValueId> values_;  ///< By source value; invalid while nothing stands for it.
  int next_suffix_;
};

}  // namespace volta
