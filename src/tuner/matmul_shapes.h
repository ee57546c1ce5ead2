// Which matrix products a graph runs, as the tuner knows them: to tune a model's own shapes.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "kernels/cpu/matmul_parameters.h"

namespace [[gnu::visibility("default")]] volta {

/// The products of floats on `threads` threads, each different one once, in the graph's order.
/// Those in batches and those with weights of integers are not tuned, and left out. The graph is
/// one that a CpuDevice runs: packed and optimised.
std::vector<cpu::MatMulShape> matmul_shapes(const Graph& graph, int threads);

}  // namespace volta
