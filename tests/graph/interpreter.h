// A second implementation of enough ops to run small graphs and plans in tests: slow, obvious, and
// independent of every device. Also a Backend whose wishes a test can set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/backend.h"
#include "graph/graph.h"
#include "graph/plan.h"

namespace volta::testing {

/// A tensor whose elements are held as f32 whatever their type, rounded to what that type can hold.
struct Array {
  TensorSpec spec;
  std::vector<float> data;
};
/// Arrays by name: what a graph or plan is given (states are written) and what it gives.
using Arrays = std::map<std::string, Array>;

/// Runs one op; written inputs change in place. Throws std::runtime_error for an op it lacks.
std::vector<Array> evaluate_op(const Op& op, std::span<Array> inputs);

/// Runs a graph or a plan and returns its outputs. The plan's arena starts as garbage, and a step's
/// workspace is overwritten with garbage before the step.
Arrays run_graph(const Graph& graph, Arrays& bindings);
Arrays run_plan(const Plan& plan, Arrays& bindings);
/// The same, with the steps in the order that `order` gives.
Arrays run_plan(const Plan& plan, Arrays& bindings, std::span<const std::size_t> order);

/// Values for every input, parameter and state: small, of both signs, the same for the same name.
Arrays make_bindings(const Graph& graph);

/// The bits of every array, for exact comparison (NaN equals itself).
std::map<std::string, std::vector<std::uint32_t>> bits(const Arrays& arrays);

/// Supports everything, needs no workspace and evaluates by evaluate_op, unless told otherwise.
class TestBackend : public Backend {
 public:
  std::function<bool(const Op&, std::span<const TensorSpec>)> supported;
  std::function<std::int64_t(const Op&)> workspace;
  std::function<Result<std::vector<Tensor>>(std::vector<Tensor>)> after_evaluate;
  int evaluated = 0;  ///< Calls of evaluate.
  std::int32_t stream_count = 1;

  bool supports(const Op& op, std::span<const TensorSpec> inputs) const override {
    return !supported || supported(op, inputs);
  }
  std::int64_t workspace_bytes(const Op& op, std::span<const TensorSpec>,
                               std::span<const TensorSpec>) const override {
    return workspace ? workspace(op) : 0;
  }
  Encoding preferred_encoding(const Op&, std::size_t, const TensorSpec&) const override {
    return {};
  }
  std::int32_t streams() const override { return stream_count; }
  Result<std::vector<Tensor>> evaluate(const Op& op, std::span<const Tensor> inputs) override;
};

}  // namespace volta::testing
