// Transformer: a config and its weights on a device. The graphs that train and run it are built by
// nn/transformer_graph.h; this class owns the data they are bound to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/device.h"
#include "graph/graph.h"
#include "graph/passes.h"
#include "graph/plan.h"
#include "nn/lora.h"
#include "nn/transformer_config.h"
#include "nn/weight_source.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

/// kOutOfMemory when `copies` tensors of the size of every f32 parameter (weights, gradients,
/// moments) are more than the device's memory; told before the first one is made.
Status check_memory(const TransformerConfig& config, std::int64_t copies, const Device& device);

/// Whether weights that are stored as integers have their blocks along the axis that the model's
/// products sum over; `stored` has the spec of every parameter. kInvalidFile, naming the first that
/// has not.
Status check_integer_weights(const TransformerConfig& config,
                             const std::map<std::string, TensorSpec>& stored);

/// The specs in which a model that only runs keeps its parameters, by name, when they are stored as
/// `stored` says: those of matrix products packed, in `format` where that is narrower.
Result<std::map<std::string, TensorSpec>> packed_specs(
    const TransformerConfig& config, const Device& device, const WeightFormat& format,
    const std::map<std::string, TensorSpec>& stored);

/// A parameter's initial value (see Transformer::random), drawn from Philox stream `stream`.
/// kInterrupted when the device was told to stop.
Result<Tensor> fresh_parameter(const TransformerConfig& config, const ParameterInfo& info,
                               std::uint64_t seed, std::uint32_t stream, Device& device);

/// The plan of a model's graph for weights that are stored as `stored` says, with matrix products
/// in `compute_dtype`.
Result<Plan> plan_for_weights(const Graph& graph, const ParameterSpecs& stored, DType compute_dtype,
                              Device& device);

/// How the weights of a model are kept.
struct WeightOptions {
  /// For a model that only runs: in the type they are stored in, packed as the device's kernels
  /// read them (see Transformer::prepack). Otherwise in f32, plain: to be trained or saved.
  bool packed = false;
  WeightFormat format{};  ///< Packed matrices wider than this are rounded to it.
  /// Packed matrices that are stored as integers become f32 first, so that their products take
  /// activations as they are. Otherwise they stay integers, and activations are rounded to 8 bits.
  bool widen = false;
};

/// The specs that Transformer::load() gives the parameters of a source; reads no data.
Result<std::map<std::string, TensorSpec>> loaded_specs(const TransformerConfig& config,
                                                       WeightSource& source, const Device& device,
                                                       const WeightOptions& options);

class Transformer {
 public:
  /// Fresh weights: normal(0, init_std) from Philox(seed, parameter index, 0, element), residual
  /// projections scaled by 1 / sqrt(2 layers), norms one (or what adds to one), biases zero. The
  /// same on every device.
  static Result<Transformer> random(const TransformerConfig& config, std::uint64_t seed,
                                    std::shared_ptr<Device> device);
  /// Weights that exist already. Every parameter must be there with its shape, in f32, bf16 or f16
  /// (which become f32), or packed as prepack() leaves it; extra tensors are an error that names
  /// them.
  static Result<Transformer> from_weights(const TransformerConfig& config,
                                          std::map<std::string, Tensor> weights,
                                          std::shared_ptr<Device> device);

  /// Weights from a source, one after the other: never more than one is held twice. kInterrupted
  /// soon after the device was told to stop; kInvalidFile after the first weight whose source has
  /// changed while it was read.
  static Result<Transformer> load(const TransformerConfig& config, WeightSource& source,
                                  std::shared_ptr<Device> device,
                                  const WeightOptions& options = {});

  const TransformerConfig& config() const { return config_; }
  const std::shared_ptr<Device>& device() const { return device_; }
  /// Weights by the names of the model's files; they share memory with every plan bound to this
  /// model.
  const std::map<std::string, Tensor>& weights() const { return weights_; }
  Result<Tensor> weight(std::string_view name) const;
  /// Puts another tensor of the same shape in a weight's place. Plans bound before keep the old
  /// one.
  Status replace_weight(const std::string& name, Tensor weight);
  /// Adds an adapter (nn/lora.h) beside the weights: graphs built with lora() compute with it, and
  /// it, not the weights, is what training changes. apply_adapter() merges one instead.
  Status attach(Adapter adapter);
  /// Rank 0 without one.
  const Adapter& adapter() const { return adapter_; }
  const LoraConfig& lora() const { return adapter_.config; }
  /// What training changes: the adapter's tensors, or without one the weights.
  const std::map<std::string, Tensor>& trained_weights() const {
    return lora().active() ? adapter_.weights : weights_;
  }
  /// Packs the weights of the matrix products for inference (see the pass `prepack`), in `format`
  /// where that is narrower than they are: one after the other, each plain one released when nobody
  /// else holds it. Afterwards the model runs faster and can neither be trained nor saved; results
  /// are the same, but for the rounding to `format`.
  Status prepack(const WeightFormat& format = {});
  /// The plan of `graph`, one of this model's, on its device, for the weights as they are stored.
  Result<Plan> plan(const Graph& graph, DType compute_dtype) const;
  std::int64_t parameter_count() const;
  std::int64_t weight_bytes() const;

  /// Resolves a plan's parameters; makes the rotation tables for a sequence of as many tokens as a
  /// table has rows. kNotFound for anything else. Users of the model's graphs put their own lookup
  /// in front.
  Result<Tensor> bind(const PlanBinding& binding) const;

 private:
  Transformer() = default;
  /// from_weights(), with the types as they are.
  static Result<Transformer> assemble(const TransformerConfig& config,
                                      std::map<std::string, Tensor> weights,
                                      std::shared_ptr<Device> device);

  TransformerConfig config_;
  std::shared_ptr<Device> device_;
  std::map<std::string, Tensor> weights_;
  Adapter adapter_;
};

}  // namespace volta
