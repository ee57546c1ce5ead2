// Backend: what passes and the planner may ask of the device that a plan is made for. Devices
// implement it; graph knows nothing else of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "ops/op.h"
#include "tensor/spec.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

/// What is rounded to the compute type.
enum class Rounding : std::uint8_t {
  kProducts,     ///< The factors of every MatMul; everything between products stays f32.
  kActivations,  ///< Activations and their gradients, too: they are stored in the compute type.
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// Whether the device has a kernel for this op on these inputs. Where it has one for f32 only,
  /// `legalize` (graph/passes.h) puts casts around the op.
  virtual bool supports(const Op& op, std::span<const TensorSpec> inputs) const = 0;
  /// Scratch memory the kernel needs, in bytes; placed in the plan's arena.
  virtual std::int64_t workspace_bytes(const Op& op, std::span<const TensorSpec> inputs,
                                       std::span<const TensorSpec> outputs) const = 0;
  /// The encoding in which the device likes to read input `input` of this op when it is a weight
  /// that does not change; plain when it does not care.
  virtual Encoding preferred_encoding(const Op& op, std::size_t input,
                                      const TensorSpec& spec) const = 0;
  /// Why computing in `dtype` can be slower here than computing in f32, to stand after a colon:
  /// "this CPU ...". Empty where it pays.
  virtual std::string compute_drawback(DType /*dtype*/, Rounding /*rounding*/) const { return {}; }
  /// Rewrites an optimised graph for this device, before it is planned: other ops with the same
  /// results. What comes back must verify. The default changes nothing.
  virtual Result<Graph> lower(const Graph& graph) const { return graph; }
  /// How many streams of steps it runs beside each other, at least 1. Where there are more,
  /// make_plan() spreads steps that do not depend on each other over them.
  virtual std::int32_t streams() const { return 1; }
  /// Runs one op on host tensors and returns its outputs on the host (for constant folding).
  virtual Result<std::vector<Tensor>> evaluate(const Op& op, std::span<const Tensor> inputs) = 0;
};

}  // namespace volta
