// Short words for building graphs in tests: what fails throws, and so fails the test.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/passes.h"

namespace volta::testing {

template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return *std::move(result);
}
inline void must(Status status) {
  if (!status) throw std::runtime_error(status.error().message());
}

inline TensorSpec f32(const Shape& shape) { return {DType::kF32, shape}; }

/// Appends `op` and returns its first output.
inline ValueId add(Graph& graph, const Op& op, std::initializer_list<ValueId> inputs) {
  return must(graph.add_one(op, inputs));
}
/// Appends `op`, which has no outputs.
inline void write(Graph& graph, const Op& op, const std::vector<ValueId>& inputs) {
  (void)must(graph.add(op, inputs));
}

/// The names of the graph's ops, in order: "MatMul Binary Unary".
inline std::string ops(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes()) {
    if (!text.empty()) text += ' ';
    text += op_name(node.op);
  }
  return text;
}

/// The error's message; empty when there is none.
template <typename T>
std::string message(const Result<T>& result) {
  return result ? std::string() : std::string(result.error().message());
}

}  // namespace volta::testing
