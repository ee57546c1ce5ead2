// The invariants of a graph, one by one, on its bare parts: Graph's own methods cannot make a wrong
// graph, so the tests of verify need to hand it one.
#pragma once

#include <span>

#include "base/result.h"
#include "graph/graph.h"

namespace volta {

/// Only states and parameters may be written, and what is written is an operand only once.
Status check_effects(const Op& op, std::span<const ValueId> inputs, std::span<const Value> values);

/// verify() on the parts of a graph: an error names the value or node at fault. kInternal (a broken
/// pass), or what infer and check_effects say of a node.
Status verify_parts(std::span<const Value> values, std::span<const Node> nodes,
                    std::span<const GraphOutput> outputs);

}  // namespace volta
