// Lists the matrix products of a graph, to tune a model's own shapes.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "kernels/cpu/matmul_parameters.h"

namespace [[gnu::visibility("default")]] volta {

/// The products of floats in a graph, on `threads` threads; each different one once, in the graph's
/// order. Batched products and products with weights of integers are left out, because they are not
/// tuned. The graph must be packed and optimised, as a CpuDevice runs it.
std::vector<cpu::MatMulShape> matmul_shapes(const Graph& graph, int threads);

}  // namespace volta
