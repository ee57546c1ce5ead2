// Checks of a graph's invariants that take the parts of a graph instead of a Graph. The methods of
// Graph cannot build an invalid graph, so tests use these functions to pass one.
#pragma once

#include <span>

#include "base/result.h"
#include "graph/graph.h"

namespace volta {

/// Checks that the op writes states and parameters only, and that each written value is an operand
/// only once.
Status check_effects(const Op& op, std::span<const ValueId> inputs, std::span<const Value> values);

/// verify() on the parts of a graph. An error names the invalid value or node. It is kInternal (a
/// broken pass), or the error of infer or check_effects for a node.
Status verify_parts(std::span<const Value> values, std::span<const Node> nodes,
                    std::span<const GraphOutput> outputs);

}  // namespace volta
