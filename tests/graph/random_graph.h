// Graphs out of random numbers, for the properties of passes and plans.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace volta::testing {

/// A small valid graph of pointwise ops, products, reductions, reshapes, norms, constants and
/// writes to states, one or a few nodes a number of `tape`. Every node has a label of its own. Any
/// tape will do, so that RapidCheck can shrink it.
Graph random_graph(const std::vector<std::uint32_t>& tape);

}  // namespace volta::testing
