// How GGUF names and arranges a model's parameters: Hugging Face names to ggml's, and the order in
// which the values lie. Knows no file.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "nn/transformer_config.h"

namespace [[gnu::visibility("default")]] volta {

/// How the values of a parameter lie in GGUF compared with Hugging Face.
enum class GgufLayout : std::uint8_t {
  kSame,
  kRotaryPairs,  ///< Llama's q and k: the two rows that rotate together are neighbours.
  kTransposed,   ///< GPT-2's matrices: [in, out] there, [out, in] in GGUF.
  kPlusOne,      ///< Gemma's norms: GGUF holds 1 + weight. f32 always.
};

/// What sets an architecture of ggml apart: how its tensors lie and what its metadata leaves
/// unsaid.
struct GgufArchitecture {
  std::string_view name;
  std::array<std::string_view, 2> families;  ///< Of the hub (model_family()).
  WeightNaming naming = WeightNaming::kLlama;
  bool rotary_pairs = false;  ///< Rotates neighbours, other architectures halves.
  Activation activation = Activation::kSilu;
  NormPlace norm_place = NormPlace::kBefore;
  bool qk_norm_whole = false;
  bool longrope = false, partial_rotation = false;
  std::int64_t unrotated_every = 0;  ///< Every n-th layer does not rotate.
  std::int64_t full_every = 0;       ///< With a window every n-th layer has none; 0: all have it.
  bool gemma = false;                ///< Norms of 1 + weight, scaled embeddings.
  bool windows = true;               ///< Files may have windows. (OLMo 3's are called olmo2.)
  /// Gemma 2's, of attention's scores and of logits, and its window: what llama.cpp takes where a
  /// file does not say them.
  float attention_cap = 0.0f, logit_cap = 0.0f;
  std::int32_t window = 0;
  double local_theta = 0.0;  ///< The usual base of layers with a window; 0: that of all.
  /// The number of layers by which a model is known whose queries are scaled by dim / heads.
  std::int64_t layers_scaled_by_width = 0;

  /// What GGUF takes for config.query_scalar.
  float query_scalar(const TransformerConfig& config) const;
  /// Sets the fields that no key and no tensor of a file tells; sizes and the window are there.
  void set_unsaid(TransformerConfig& config) const;
};
/// kUnsupported, listing them, for a name that is none of Volta's architectures.
Result<const GgufArchitecture*> find_gguf_architecture(std::string_view name);

/// Where one parameter is found in GGUF.
struct GgufPlace {
  std::string name;
  GgufLayout layout = GgufLayout::kSame;
};

/// The architecture as which a model is written. kUnsupported for a model that none of them
/// describes, saying what is in the way.
Result<const GgufArchitecture*> gguf_architecture(const TransformerConfig& config);

/// The place of the parameter with this Hugging Face name. An empty name when GGUF has none for it.
GgufPlace gguf_place(const GgufArchitecture& architecture, std::string_view parameter);

/// The shape of a parameter as GGUF lists it (outermost axis first, as everywhere in Volta).
Shape gguf_shape(GgufLayout layout, const Shape& shape);

/// Of kRotaryPairs: which row of Hugging Face lies at row `row` of GGUF. A head's row 2 * j + c
/// (c = 0, 1) there is c * half + j here.
std::int64_t gguf_row_source(std::int64_t row, std::int64_t head_dim);

}  // namespace volta
