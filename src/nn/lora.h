// LoRA (Hu et al. 2021): y = x W + b + scale * dropout(x) A^T B^T for some projections of a model
// whose own weights stay as they are. Which projections, how strongly, the tensors A and B, and
// their merging into the weights. The nodes are added by nn/transformer_graph.cc; files are the
// business of formats/adapter.h.
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

/// As a target: every projection of the blocks.
inline constexpr std::string_view kAllLinear = "all-linear";

inline constexpr std::int64_t kMaxLoraRank = std::int64_t{1} << 16;

struct LoraConfig {
  std::int64_t rank = 0;         ///< Rows of A, columns of B; 0: no adapter.
  double alpha = 0.0;            ///< The share is scaled by alpha / rank.
  float dropout = 0.0f;          ///< On the adapter's input, in training only.
  bool rank_stabilized = false;  ///< By alpha / sqrt(rank) instead (Kalajdzievski 2023).
  /// Names of projections, or dotted ends of their paths: "q_proj", "attn.c_proj".
  std::set<std::string, std::less<>> targets{};

  bool active() const { return rank > 0; }
  float scale() const;
  /// For evaluation and inference: adapters drop in training only.
  LoraConfig without_dropout() const;
  bool operator==(const LoraConfig&) const = default;
};

/// Fills in what was left out, as peft does: alpha 0 becomes 2 rank; no targets become q_proj and
/// v_proj, or c_attn or qkv_proj where the model has one matrix for all three; all-linear becomes
/// the names it stands for. Then checks every field: kInvalidArgument, naming the field or the
/// target that the model lacks.
Result<LoraConfig> complete_lora(LoraConfig lora, const TransformerConfig& config);

/// Whether a projection ("model.layers.0.self_attn.q_proj") is among the targets. False when
/// inactive.
bool is_target(const LoraConfig& lora, std::string_view projection);

/// A target of an adapter: y [.., outputs] from x [.., inputs].
struct LoraLayer {
  std::string name;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::string a() const { return name + ".lora_A.weight"; }  ///< [rank, inputs]
  std::string b() const { return name + ".lora_B.weight"; }  ///< [outputs, rank]
};
/// In the order of the model's parameters.
std::vector<LoraLayer> lora_layers(const TransformerConfig& config, const LoraConfig& lora);

/// A and B of every layer.
std::vector<ParameterInfo> lora_parameters(const TransformerConfig& config, const LoraConfig& lora);
/// What training changes: the adapter's parameters, or without one the model's.
std::vector<ParameterInfo> trained_parameters(const TransformerConfig& config,
                                              const LoraConfig& lora);

/// An adapter's tensors, by the names of lora_parameters().
struct Adapter {
  LoraConfig config;
  std::map<std::string, Tensor> weights;

  /// A uniform in +-1 / sqrt(inputs) (Kaiming with a = sqrt 5, as peft does) from Philox(seed,
  /// 0x10A00000 + parameter index, 0, element); B zero: it changes nothing yet.
  static Result<Adapter> random(const TransformerConfig& config, const LoraConfig& lora,
                                std::uint64_t seed, Device& device);
};

/// kInvalidFile, naming the tensor, unless these are exactly the tensors that `lora` asks for in a
/// model of `config`, each of a plain float type and of its shape.
Status check_adapter(const TransformerConfig& config, const LoraConfig& lora,
                     const std::map<std::string, TensorSpec>& specs);
Status check_adapter(const TransformerConfig& config, const Adapter& adapter);

/// Merges: W += scale * B A for every layer, in f32, as new tensors; others that share the old ones
/// keep them. The weights must be plain: merge before Transformer::prepack(). On an error the model
/// may be merged in part.
Status apply_adapter(Transformer& model, const Adapter& adapter);

}  // namespace volta
