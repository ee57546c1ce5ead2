// TransformerConfig: the architecture of a decoder-only transformer as run-time data. One struct
// describes TinyLm, GPT-2, Llama, Qwen and their kin; nothing else in Volta knows model families by
// name but the code that reads and writes their files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/op.h"
#include "tensor/spec.h"

namespace [[gnu::visibility("default")]] volta {

/// How a token's place enters the model.
enum class PositionKind : std::uint8_t { kLearned, kRotary };
/// The feed-forward block: down(act(up(x))), or down(act(gate(x)) * up(x)).
enum class FfnKind : std::uint8_t { kMlp, kGated };

/// How rotary frequencies are stretched for sequences longer than those of the first training. The
/// kinds are those of Hugging Face's `rope_type`.
enum class RopeKind : std::uint8_t {
  kDefault,  ///< Not at all (Su et al. 2021).
  kLinear,   ///< All by `factor` (Chen et al. 2023).
  kDynamic,  ///< By a base that grows with the sequence past `original` tokens (NTK-aware).
  kLlama3,   ///< Slow ones by `factor`, fast ones not, a ramp between (Llama 3.1).
  kYarn,     ///< The same by rotations, and sharper attention (Peng et al. 2023).
};
/// Fields that a kind does not name keep their defaults.
struct RopeScaling {
  RopeKind kind = RopeKind::kDefault;
  double factor = 1.0;
  std::int64_t original = 0;      ///< Context of the first training; unused by kDefault.
  double low_freq_factor = 1.0;   ///< kLlama3: waves longer than original / this are stretched.
  double high_freq_factor = 4.0;  ///< kLlama3: waves shorter than original / this are kept.
  double beta_fast = 32.0;        ///< kYarn: above this many rotations frequencies are kept.
  double beta_slow = 1.0;         ///< kYarn: below this many they are stretched.
  bool truncate = true;           ///< kYarn: the ramp begins and ends at whole dimensions.
  double attention_factor = 1.0;  ///< kYarn: on cosines and sines.
  bool operator==(const RopeScaling&) const = default;
};

/// Pre-norm decoder: x += attention(norm(x)); x += ffn(norm(x)); logits = head(norm(x)).
/// Parameter names and layouts follow Hugging Face: with learned positions those of GPT-2
/// (transformer.h.N..., weights [in, out], packed c_attn), with rotary ones those of Llama
/// (model.layers.N..., weights [out, in]).
struct TransformerConfig {
  std::int64_t vocab_size = 256;
  std::int64_t context = 512;  ///< Longest sequence, in tokens.
  std::int64_t layers = 4;
  std::int64_t dim = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 4;   ///< Divides heads.
  std::int64_t head_dim = 32;  ///< Usually dim / heads; need not be.
  std::int64_t ffn = 512;

  PositionKind position = PositionKind::kLearned;
  NormKind norm = NormKind::kLayer;
  FfnKind ffn_kind = FfnKind::kMlp;
  Activation activation = Activation::kGelu;
  float activation_scale = 1.0f;  ///< act(s x) / s; silu with 1.702 is CLIP's quick GELU.
  float norm_eps = 1e-5f;
  bool norm_bias = false;           ///< Layer norm only.
  bool attention_bias = false;      ///< On the query, key and value projections.
  bool attention_out_bias = false;  ///< On the output projection.
  bool ffn_bias = false;
  bool qk_norm = false;          ///< RMS norm over each head of q and k before rotation (Qwen 3).
  bool tied_output = true;       ///< The output projection is the token embedding.
  bool attention_scaled = true;  ///< Scores are divided by sqrt(head_dim).
  bool attention_scaled_by_layer = false;  ///< And by 1, 2, 3 ... from layer to layer.
  std::int32_t window = 0;                 ///< Sliding-window attention; 0: full.
  /// Layers without the window, ascending; empty when all layers are alike.
  std::vector<std::int64_t> full_layers{};

  float rope_theta = 10000.0f;
  std::int64_t rotary_dim = 0;  ///< Rotated elements a head; 0: all of head_dim.
  RopeScaling rope_scaling{};

  float init_std = 0.02f;  ///< Residual projections: divided by sqrt(2 layers).

  bool operator==(const TransformerConfig&) const = default;

  /// Elements of a head that are rotated.
  std::int64_t rotated() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
  /// The sliding window of one layer; 0: full attention.
  std::int32_t layer_window(std::int64_t layer) const;
};

/// The default TinyLm: 4 layers, 4 heads, 128 wide, context 512, byte vocabulary.
TransformerConfig tiny_lm_config();

/// Checks every size and combination before anything is allocated; the message names the field, its
/// value and what would do.
Status validate(const TransformerConfig& config);

/// How a fresh parameter starts. kKaimingUniform: in +-1 / sqrt(columns), for adapters.
enum class InitKind : std::uint8_t { kZeros, kOnes, kNormal, kNormalResidual, kKaimingUniform };

struct ParameterInfo {
  std::string name;  ///< Hugging Face name path.
  Shape shape;
  InitKind init = InitKind::kNormal;
  bool decay() const { return shape.rank() >= 2; }  ///< Weight decay applies to matrices only.
};

/// Every parameter of a model, in a fixed order: embeddings, blocks, final norm, head.
std::vector<ParameterInfo> parameters(const TransformerConfig& config);
std::int64_t parameter_count(const TransformerConfig& config);

}  // namespace volta
