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
#include "nn/transformer_config.h"
#include "nn/weight_source.h"
#include "tensor/tensor.h"

namespace volta {

/// kOutOfMemory when `copies` tensors of the size of every f32 parameter (weights, gradients,
/// moments) are more than the device's memory; told before the first one is made.
Status check_memory(const TransformerConfig& config, std::int64_t copies, const Device& device);

/// The specs in which a model that only runs keeps its parameters, by name, when they are stored as
/// `stored` says: those of matrix products packed, in `format` where that is narrower.
Result<std::map<std::string, TensorSpec>> packed_specs(
    const TransformerConfig& config, const Device& device, const WeightFormat& format,
    const std::map<std::string, TensorSpec>& stored);

/// How the weights of a model are kept.
struct WeightOptions {
  /// For a model that only runs: in the type they are stored in, packed as the device's kernels
  /// read them (see Transformer::prepack). Otherwise in f32, plain: to be trained or saved.
  bool packed = false;
  WeightFormat format{};  ///< Packed matrices wider than this are rounded to it.
};

/// The specs that Transformer::load() gives the parameters of a source; reads no data.
Result<std::map<std::string, TensorSpec>> loaded_specs(const TransformerConfig& config,
                                                       WeightSource& source, const Device& device,
                                                       const WeightOptions& options);

class Transformer {
 public:
  /// Fresh weights: normal(0, init_std) from Philox(seed, parameter index, 0, element), residual
  /// projections scaled by 1 / sqrt(2 layers), norms one, biases zero. The same on every device.
  static Result<Transformer> random(const TransformerConfig& config, std::uint64_t seed,
                                    std::shared_ptr<Device> device);
  /// Weights that exist already. Every parameter must be there with its shape, in f32, bf16 or f16
  /// (which become f32), or packed as prepack() leaves it; extra tensors are an error that names
  /// them.
  static Result<Transformer> from_weights(const TransformerConfig& config,
                                          std::map<std::string, Tensor> weights,
                                          std::shared_ptr<Device> device);

  /// Weights from a source, one after the other: never more than one is held twice.
  static Result<Transformer> load(const TransformerConfig& config, WeightSource& source,
                                  std::shared_ptr<Device> device,
                                  const WeightOptions& options = {});

  const TransformerConfig& config() const { return config_; }
  const std::shared_ptr<Device>& device() const { return device_; }
  /// Weights by Hugging Face name; they share memory with every plan bound to this model.
  const std::map<std::string, Tensor>& weights() const { return weights_; }
  Result<Tensor> weight(std::string_view name) const;
  /// Packs the weights of the matrix products for inference (see the pass `prepack`), in `format`
  /// where that is narrower than they are: one after the other, each plain one released when nobody
  /// else holds it. Afterwards the model runs faster and can neither be trained nor saved; results
  /// are the same, but for the rounding to `format`.
  Status prepack(const WeightFormat& format = {});
  /// `graph`, one of this model's, with its parameters as the weights are stored.
  Result<Graph> with_stored_weights(const Graph& graph) const;
  std::int64_t parameter_count() const;
  std::int64_t weight_bytes() const;

  /// Resolves a plan's parameters; makes "rope.table" for a sequence of as many tokens as the table
  /// has rows. kNotFound for anything else. Users of the model's graphs put their own lookup in
  /// front.
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
};

}  // namespace volta
