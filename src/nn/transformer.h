// Transformer: a config and its weights on a device. nn/transformer_graph.h and nn/training_graph.h
// build the graphs that run and train it; this class owns the data that they are bound to.
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

/// kOutOfMemory if `copies` f32 tensors of the size of every parameter (weights, gradients,
/// moments) need more than the device's memory. Call this before the first one is allocated.
Status check_parameters_fit(const TransformerConfig& config, std::int64_t copies,
                            const Device& device);

/// Checks that weights stored as integers have their blocks along the axis that the model's
/// products sum over. `stored` has the spec of every parameter. kInvalidFile names the first weight
/// that does not.
Status check_integer_weights(const TransformerConfig& config,
                             const std::map<std::string, TensorSpec>& stored);

/// The specs, by name, in which a model that only runs keeps parameters that are stored as `stored`
/// says. Weights of matrix products are packed, and rounded to `format` if that is narrower.
Result<std::map<std::string, TensorSpec>> packed_specs(
    const TransformerConfig& config, const Device& device, const WeightFormat& format,
    const std::map<std::string, TensorSpec>& stored);

/// The initial value of a new parameter (see Transformer::random), drawn from Philox stream
/// `stream`. kInterrupted if the device was told to stop.
Result<Tensor> fresh_parameter(const TransformerConfig& config, const ParameterInfo& info,
                               std::uint64_t seed, std::uint32_t stream, Device& device);

/// The plan of a model's graph, for weights stored as `stored` says, with matrix products in
/// `compute_dtype`.
Result<Plan> plan_for_weights(const Graph& graph, const ParameterSpecs& stored, DType compute_dtype,
                              Device& device);

/// How the weights of a model are kept.
struct WeightOptions {
  /// true: for a model that only runs. Matrices keep the type in which they are stored and are
  /// packed for the device's kernels (see Transformer::prepack). false: for a model that is trained
  /// or saved. Weights become plain f32.
  bool packed = false;
  WeightFormat format{};  ///< Packed matrices that are wider than this are rounded to it.
  /// true: packed matrices that are stored as integers become f32 first, so that their products do
  /// not round activations. false: they stay integers, and activations are rounded to 8 bits.
  bool widen = false;
};

/// The specs that Transformer::load() gives the parameters of a source. Reads no data.
Result<std::map<std::string, TensorSpec>> loaded_specs(const TransformerConfig& config,
                                                       WeightSource& source, const Device& device,
                                                       const WeightOptions& options);

class Transformer {
 public:
  /// New weights: normal(0, init_std) from Philox(seed, parameter index, 0, element). Residual
  /// projections are scaled by 1 / sqrt(2 layers). Norms are one (or zero, if the model adds one to
  /// them), and biases are zero. The same on every device.
  static Result<Transformer> random(const TransformerConfig& config, std::uint64_t seed,
                                    std::shared_ptr<Device> device);
  /// Takes existing weights. Every parameter must be present with its shape: in f32, in bf16 or f16
  /// (which are converted to f32), or packed as prepack() leaves it. An extra tensor is an error
  /// that names it.
  static Result<Transformer> from_weights(const TransformerConfig& config,
                                          std::map<std::string, Tensor> weights,
                                          std::shared_ptr<Device> device);

  /// Reads the weights of a source one after the other, so that at most one of them is in memory
  /// twice. kInterrupted soon after the device was told to stop. kInvalidFile if the source of a
  /// weight changed while it was read.
  static Result<Transformer> load(const TransformerConfig& config, WeightSource& source,
                                  std::shared_ptr<Device> device,
                                  const WeightOptions& options = {});

  const TransformerConfig& config() const { return config_; }
  const std::shared_ptr<Device>& device() const { return device_; }
  /// The weights, by their names in the model's files. They share memory with every plan that is
  /// bound to this model.
  const std::map<std::string, Tensor>& weights() const { return weights_; }
  Result<Tensor> weight(std::string_view name) const;
  /// Replaces a weight with another tensor of the same shape. Plans that were bound before keep the
  /// old one.
  Status replace_weight(const std::string& name, Tensor weight);
  /// Adds an adapter (nn/lora.h) beside the weights. Graphs that are built with lora() use it, and
  /// training changes it instead of the weights. apply_adapter() merges an adapter instead.
  Status attach(Adapter adapter);
  /// Its rank is 0 if there is no adapter.
  const Adapter& adapter() const { return adapter_; }
  const LoraConfig& lora() const { return adapter_.config; }
  /// What training changes: the adapter's tensors, or the weights if there is no adapter.
  const std::map<std::string, Tensor>& trained_weights() const {
    return lora().active() ? adapter_.weights : weights_;
  }
  /// Packs the weights of the matrix products for inference (see the pass `prepack`), rounded to
  /// `format` if that is narrower. It packs one weight at a time and releases the plain one unless
  /// it is shared. Afterwards the model runs faster, but it can neither be trained nor saved.
  /// Results are the same, except for the rounding to `format`.
  Status prepack(const WeightFormat& format = {});
  /// The plan of `graph`, a graph of this model, on its device, for the weights as they are stored.
  Result<Plan> plan(const Graph& graph, DType compute_dtype) const;
  std::int64_t parameter_count() const;
  std::int64_t weight_bytes() const;

  /// Finds a plan's parameters, and makes its rotation tables, for a sequence of as many tokens as
  /// the table has rows. kNotFound for anything else. Users of the model's graphs call their own
  /// lookup first.
  Result<Tensor> bind(const PlanBinding& binding) const;

 private:
  Transformer() = default;
  /// Like from_weights(), but keeps the types.
  static Result<Transformer> assemble(const TransformerConfig& config,
                                      std::map<std::string, Tensor> weights,
                                      std::shared_ptr<Device> device);

  TransformerConfig config_;
  std::shared_ptr<Device> device_;
  std::map<std::string, Tensor> weights_;
  Adapter adapter_;
};

}  // namespace volta
