// Reads the MatMul nodes of a graph.
#include "tuner/matmul_shapes.h"

#include <algorithm>
#include <variant>

#include "kernels/cpu/matmul_plan.h"
#include "tuner/tuning_cache.h"

namespace volta {

std::vector<cpu::MatMulShape> matmul_shapes(const Graph& graph, int threads) {
  std::vector<cpu::MatMulShape> shapes;
  for (const Node& node : graph.nodes()) {
    const auto* op = std::get_if<MatMul>(&node.op);
    if (op == nullptr || op->batched) continue;
    std::vector<View> inputs;
    for (const ValueId input : node.inputs) inputs.emplace_back(nullptr, graph.spec(input));
    const cpu::MatMulProblem problem = cpu::matmul_problem(*op, {inputs, {}});
    const auto shape = cpu::tuned_shape(*op, problem, threads);
    if (!shape) continue;
    const bool known = std::ranges::any_of(
        shapes, [&](const cpu::MatMulShape& other) { return tuner::same_choice(*shape, other); });
    if (!known) shapes.push_back(*shape);
  }
  return shapes;
}

}  // namespace volta
