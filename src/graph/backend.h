// Backend: the interface through which passes and the planner query the device that a plan is made
// for. Devices implement it. The graph library knows nothing else about devices.
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

/// The values that are rounded to the compute type.
enum class Rounding : std::uint8_t {
  kProducts,     ///< The factors of every MatMul; all other values stay f32.
  kActivations,  ///< Activations and their gradients, too, which are stored in the compute type.
};

/// How the time of a step depends on its rows, beside what each row costs.
struct StepCosts {
  std::int64_t overhead_rows = 8;  ///< A step of one row takes as long as so many further rows of a
                                   ///< prompt would: see StepWork.
  std::int64_t fast_rows = 0;      ///< A step of more rows takes several times as long, whatever
                                   ///< their number; 0: there is no such number.
};

/// How a device prefers to run models, as opposed to training them.
struct InferenceChoices {
  Rounding rounding = Rounding::kProducts;  ///< With a compute type of 16 bits.
  DType cache = DType::kF32;                ///< The type of a KV cache.
  std::int64_t step_rows = 256;             ///< The most rows of a prompt in one step: one of
                                            ///< step_sizes() (nn/step_plans.h).
  StepCosts costs;                          ///< Of models with weights of floats only.
  StepCosts integer_costs;                  ///< Of models with weights of integers.
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// Whether the device has a kernel for this op on these inputs. If it has one for f32 only,
  /// `legalize` (graph/passes.h) puts casts around the op.
  virtual bool supports(const Op& op, std::span<const TensorSpec> inputs) const = 0;
  /// The scratch memory that the kernel needs, in bytes. It is part of the plan's arena.
  virtual std::int64_t workspace_bytes(const Op& op, std::span<const TensorSpec> inputs,
                                       std::span<const TensorSpec> outputs) const = 0;
  /// The encoding in which the device prefers to read input `input` of this op, if the input is a
  /// weight that does not change. Plain if the device has no preference.
  virtual Encoding preferred_encoding(const Op& op, std::size_t input,
                                      const TensorSpec& spec) const = 0;
  /// The reason why computing in `dtype` can be slower on this device than computing in f32, as
  /// text to follow a colon: "this CPU ...". Empty if `dtype` is not slower. `decodes`: whether
  /// sequences are continued token by token, too, and not only read.
  virtual std::string compute_drawback(DType /*dtype*/, Rounding /*rounding*/,
                                       bool /*decodes*/) const {
    return {};
  }
  /// How models that compute in `dtype` run best.
  virtual InferenceChoices inference_choices(DType /*dtype*/) const { return {}; }
  /// Rewrites an optimised graph for this device, before it is planned: it may use other ops with
  /// the same results. The result must pass verify(). The default changes nothing.
  virtual Result<Graph> lower(const Graph& graph) const { return graph; }
  /// The number of streams of steps that the device runs concurrently, at least 1. If there are
  /// several, make_plan() distributes steps that do not depend on each other over them.
  virtual std::int32_t streams() const { return 1; }
  /// Runs one op on host tensors and returns its outputs on the host (for constant folding).
  virtual Result<std::vector<Tensor>> evaluate(const Op& op, std::span<const Tensor> inputs) = 0;
};

}  // namespace volta
