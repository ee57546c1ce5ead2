// TransformerConfig: the architecture of a decoder-only transformer as run-time data. One struct
// describes TinyLm, GPT-2, Llama, Qwen and similar models. Only the code that reads and writes
// their files knows model families by name.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/op.h"
#include "tensor/spec.h"

namespace [[gnu::visibility("default")]] volta {

/// How the position of a token enters the model.
enum class PositionKind : std::uint8_t { kLearned, kRotary };
/// How files name the weights and arrange them; each is a row of the table in nn/weight_names.h.
enum class WeightNaming : std::uint8_t {
  kGpt2,        ///< transformer.h.N.attn.c_attn: [in, out], q | k | v as one matrix.
  kLlama,       ///< model.layers.N.self_attn.q_proj: [out, in].
  kPhi3,        ///< As kLlama, with q | k | v and gate | up as one matrix each.
  kGemma,       ///< As kLlama, with names for a norm after each half of a block; also OLMo 2.
  kStarcoder2,  ///< As kLlama, with mlp.c_fc and mlp.c_proj in place of gate, up and down.
};
/// Where a block has norms: x += attention(norm(x)), x += norm(attention(x)), or x +=
/// norm(attention(norm(x))). The feed-forward half has them in the same places.
enum class NormPlace : std::uint8_t { kBefore, kAfter, kAround };
/// The feed-forward block: down(act(up(x))), or down(act(gate(x)) * up(x)).
enum class FfnKind : std::uint8_t { kMlp, kGated };

/// How rotary frequencies are changed for sequences longer than those of the first training. The
/// kinds are those of Hugging Face's `rope_type`.
enum class RopeKind : std::uint8_t {
  kDefault,  ///< Not at all (Su et al. 2021).
  kLinear,   ///< All are divided by `factor` (Chen et al. 2023).
  kDynamic,  ///< The base grows with the sequence beyond `original` tokens (NTK-aware).
  kLlama3,   ///< Low ones are divided by `factor`, high ones not, with a ramp between (Llama 3.1).
  kYarn,     ///< As kLlama3, with a ramp over rotations, and sharper attention (Peng et al. 2023).
  /// Each frequency is divided by a factor of its own. There is one list of factors for sequences
  /// of up to `original` tokens and another for longer ones (Ding et al. 2024).
  kLongrope,
};
/// Fields that a kind does not use keep their defaults.
struct RopeScaling {
  RopeKind kind = RopeKind::kDefault;
  double factor = 1.0;
  std::int64_t original = 0;      ///< Context of the first training; unused by kDefault.
  double low_freq_factor = 1.0;   ///< kLlama3: waves longer than original / this are stretched.
  double high_freq_factor = 4.0;  ///< kLlama3: waves shorter than original / this are kept.
  double beta_fast = 32.0;        ///< kYarn: those with more rotations than this are kept.
  double beta_slow = 1.0;         ///< kYarn: those with fewer rotations than this are stretched.
  bool truncate = true;           ///< kYarn: the ramp begins and ends at whole dimensions.
  double attention_factor = 1.0;  ///< kYarn, kLongrope: multiplies cosines and sines.
  /// kLongrope: the divisors of the frequencies, config.rotated() / 2 numbers in each list.
  std::vector<float> short_factors{}, long_factors{};
  bool operator==(const RopeScaling&) const = default;
};

/// A decoder: x += attention(norm(x)); x += ffn(norm(x)); logits = head(norm(x)).
struct TransformerConfig {
  std::int64_t vocab_size = 256;
  std::int64_t context = 512;  ///< Longest sequence, in tokens.
  std::int64_t layers = 4;
  std::int64_t dim = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 4;   ///< Divides heads.
  std::int64_t head_dim = 32;  ///< Usually dim / heads, but may differ.
  std::int64_t ffn = 512;

  WeightNaming naming = WeightNaming::kGpt2;
  PositionKind position = PositionKind::kLearned;
  NormKind norm = NormKind::kLayer;
  FfnKind ffn_kind = FfnKind::kMlp;
  Activation activation = Activation::kGelu;
  float activation_scale = 1.0f;  ///< act(s x) / s; silu with 1.702 is CLIP's quick GELU.
  float norm_eps = 1e-5f;
  NormPlace norm_place = NormPlace::kBefore;
  bool norm_plus_one = false;       ///< RMS norms multiply by 1 + weight (Gemma).
  bool norm_bias = false;           ///< Layer norm only.
  bool attention_bias = false;      ///< On the query, key and value projections.
  bool attention_out_bias = false;  ///< On the output projection.
  bool ffn_bias = false;
  bool qk_norm = false;          ///< RMS norm over each head of q and k before rotation (Qwen 3).
  bool qk_norm_whole = false;    ///< With qk_norm: over all heads at once instead (OLMo 2).
  bool tied_output = true;       ///< The output projection is the token embedding.
  bool attention_scaled = true;  ///< Scores are divided by sqrt(head_dim).
  bool attention_scaled_by_layer = false;  ///< And by the layer's number, counted from 1.
  float query_scalar = 0.0f;       ///< Above 0: takes the place of head_dim under that root.
  float attention_softcap = 0.0f;  ///< Above 0: scores s become cap * tanh(s / cap) (Gemma 2).
  float logit_softcap = 0.0f;      ///< Above 0: logits likewise.
  bool embedding_scaled = false;   ///< Token embeddings are multiplied by sqrt(dim) (Gemma).
  float embedding_scale = 1.0f;    ///< Token embeddings are multiplied by this (Granite).
  float attention_scale = 0.0f;    ///< Above 0: the factor of scores instead of 1 / sqrt(head_dim).
  float residual_scale = 1.0f;     ///< Multiplies what each half of a block adds to x (Granite).
  float logit_divisor = 1.0f;      ///< Logits are divided by this (Granite).
  std::int32_t window = 0;         ///< Sliding-window attention; 0: full.
  /// Layers without the window, ascending; empty when all layers are alike.
  std::vector<std::int64_t> full_layers{};

  float rope_theta = 10000.0f;
  /// Above 0: the base in layers with the window, whose frequencies are not stretched (Gemma 3).
  float rope_local_theta = 0.0f;
  std::int64_t rotary_dim = 0;  ///< Rotated elements per head; 0: all of head_dim.
  RopeScaling rope_scaling{};
  /// Layers whose queries and keys are not rotated, ascending (SmolLM 3); possibly all of them.
  std::vector<std::int64_t> unrotated_layers{};

  float init_std = 0.02f;  ///< Divided by sqrt(2 layers) for residual projections.

  bool operator==(const TransformerConfig&) const = default;

  /// Elements of a head that are rotated.
  std::int64_t rotated() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
  /// The sliding window of one layer; 0: full attention.
  std::int32_t layer_window(std::int64_t layer) const;
  /// Whether any layer rotates queries and keys.
  bool rotates() const;
  /// Whether a layer rotates queries and keys, and whether it does so with rope_local_theta.
  bool layer_rotates(std::int64_t layer) const;
  bool layer_rotates_locally(std::int64_t layer) const;
};

/// A number that only some families have. Its default in TransformerConfig means that a model does
/// not have it.
struct ModelNumber {
  std::string_view name;             ///< The field's name; also its key in config.json.
  float TransformerConfig::* field;  ///< Where the number is.
  float least, most;                 ///< The range of numbers other than the default.
};
/// Every number that only some families have. validate() checks the range of each, and save_model()
/// writes each to config.json under its name. A new number needs a field of TransformerConfig, a
/// row here, and code in the graph that uses it.
inline constexpr std::array kModelNumbers = {
    ModelNumber{"query_scalar", &TransformerConfig::query_scalar, 1e-3f, 1e6f},
    ModelNumber{"attention_softcap", &TransformerConfig::attention_softcap, 1e-3f, 1e6f},
    ModelNumber{"logit_softcap", &TransformerConfig::logit_softcap, 1e-3f, 1e6f},
    ModelNumber{"embedding_scale", &TransformerConfig::embedding_scale, 1e-6f, 1e6f},
    ModelNumber{"attention_scale", &TransformerConfig::attention_scale, 1e-6f, 1e6f},
    ModelNumber{"residual_scale", &TransformerConfig::residual_scale, 1e-6f, 1e6f},
    ModelNumber{"logit_divisor", &TransformerConfig::logit_divisor, 1e-6f, 1e6f},
};
/// The value of `number` in a model that does not have it.
inline float value_without(float TransformerConfig::* number) {
  return TransformerConfig().*number;
}

/// The default TinyLm: 4 layers, 4 heads, 128 wide, context 512, byte vocabulary.
TransformerConfig tiny_lm_config();

/// Checks every size and combination before anything is allocated. The message names the field, its
/// value and the valid range.
Status validate(const TransformerConfig& config);

/// How a new parameter is initialised. kKaimingUniform, for adapters, is uniform in +-1 /
/// sqrt(columns).
enum class InitKind : std::uint8_t { kZeros, kOnes, kNormal, kNormalResidual, kKaimingUniform };

struct ParameterInfo {
  std::string name;  ///< Its path, as in the model's files.
  Shape shape;
  InitKind init = InitKind::kNormal;
  bool decay() const { return shape.rank() >= 2; }  ///< Weight decay applies to matrices only.
};

/// Every parameter of a model, in a fixed order: embeddings, blocks, final norm, head.
std::vector<ParameterInfo> parameters(const TransformerConfig& config);
std::int64_t parameter_count(const TransformerConfig& config);

}  // namespace volta
