// LoRA (Hu et al. 2021): y = x W + b + scale * dropout(x) A^T B^T for some projections of a model
// whose own weights do not change. This file has the configuration (which projections, how
// strongly), the tensors A and B, and their merge into the weights. nn/transformer_graph.cc adds
// the nodes; formats/adapter.h reads and writes files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "nn/transformer_config.h"
#include "tensor/tensor.h"

namespace [[gnu::visibility("default")]] volta {

class Transformer;

/// A target that stands for every projection of the blocks.
inline constexpr std::string_view kAllLinear = "all-linear";

inline constexpr std::int64_t kMaxLoraRank = std::int64_t{1} << 16;

struct LoraConfig {
  std::int64_t rank = 0;         ///< Rows of A, columns of B; 0: no adapter.
  double alpha = 0.0;            ///< The adapter's output is scaled by alpha / rank.
  float dropout = 0.0f;          ///< On the adapter's input, in training only.
  bool rank_stabilized = false;  ///< Scale by alpha / sqrt(rank) instead (Kalajdzievski 2023).
  /// Names of projections, or dotted ends of their paths: "q_proj", "attn.c_proj".
  std::set<std::string, std::less<>> targets{};

  bool active() const { return rank > 0; }
  float scale() const;
  /// A copy for evaluation and inference, because adapters use dropout only in training.
  LoraConfig without_dropout() const;
  bool operator==(const LoraConfig&) const = default;
};

/// Fills in missing values. alpha 0 becomes 2 rank. Without targets, those of peft are used: q_proj
/// and v_proj, or c_attn or qkv_proj if the model has one matrix for q, k and v. all-linear is
/// replaced by the names that it stands for. Then checks every field: kInvalidArgument names the
/// field, or the target that the model lacks.
Result<LoraConfig> complete_lora(LoraConfig lora, const TransformerConfig& config);

/// Whether a projection ("model.layers.0.self_attn.q_proj") is among the targets. False if `lora`
/// is inactive.
bool is_target(const LoraConfig& lora, std::string_view projection);

/// A projection that an adapter targets: y [.., outputs] from x [.., inputs].
struct LoraLayer {
  std::string name;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::string a() const { return name + ".lora_A.weight"; }  ///< [rank, inputs]
  std::string b() const { return name + ".lora_B.weight"; }  ///< [outputs, rank]
};
/// The targeted projections, in the order of the model's parameters.
std::vector<LoraLayer> lora_layers(const TransformerConfig& config, const LoraConfig& lora);

/// A and B of every layer.
std::vector<ParameterInfo> lora_parameters(const TransformerConfig& config, const LoraConfig& lora);
/// The parameters that training changes: the adapter's, or the model's if there is no adapter.
std::vector<ParameterInfo> trained_parameters(const TransformerConfig& config,
                                              const LoraConfig& lora);

/// An adapter's tensors, by the names of lora_parameters().
struct Adapter {
  LoraConfig config;
  std::map<std::string, Tensor> weights;

  /// Draws A uniformly from +-1 / sqrt(inputs) (Kaiming with a = sqrt 5, as peft does) with
  /// Philox(seed, 0x10A00000 + parameter index, 0, element). B is zero, so that the adapter has no
  /// effect yet.
  static Result<Adapter> random(const TransformerConfig& config, const LoraConfig& lora,
                                std::uint64_t seed, Device& device);
};

/// kInvalidFile, naming the tensor, unless `specs` are exactly the tensors that `lora` needs in a
/// model of `config`, each with a plain float type and the right shape.
Status check_adapter(const TransformerConfig& config, const LoraConfig& lora,
                     const std::map<std::string, TensorSpec>& specs);
Status check_adapter(const TransformerConfig& config, const Adapter& adapter);

/// Merges the adapter: W += scale * B A for every layer, in f32, as new tensors. Other owners of
/// the old tensors keep them. The weights must be plain, so merge before Transformer::prepack().
/// After an error the model may be partly merged.
Status apply_adapter(Transformer& model, const Adapter& adapter);

}  // namespace volta
