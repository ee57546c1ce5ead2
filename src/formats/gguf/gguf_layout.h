// How GGUF names and arranges a model's parameters: the mapping from Hugging Face names to ggml's,
// and the order of the values. Knows no file.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "nn/transformer_config.h"

namespace [[gnu::visibility("default")]] volta {

/// The arrangement of a parameter's values in GGUF compared with Hugging Face.
enum class GgufLayout : std::uint8_t {
  kSame,
  kRotaryPairs,  ///< Llama's q and k: the two rows that are rotated together are adjacent.
  kTransposed,   ///< GPT-2's matrices: Hugging Face has [in, out], GGUF [out, in].
  kPlusOne,      ///< Gemma's norms: GGUF has 1 + weight, always in f32.
};

/// A key of an architecture whose number is a field of TransformerConfig. 0 in a file means that
/// the model does not have the number.
struct GgufNumber {
  std::string_view key;  ///< After "<architecture>.".
  float TransformerConfig::* field;
  float missing = 0.0f;  ///< What llama.cpp takes if a file has no such key.

  /// The field's value for a number in a file.
  float from_file(float number) const { return number == 0.0f ? value_without(field) : number; }
};

/// How an architecture of ggml differs from others: the arrangement of its tensors, and the values
/// that its metadata does not contain.
struct GgufArchitecture {
  std::string_view name;
  std::array<std::string_view, 2> families;  ///< Names of model_family().
  WeightNaming naming = WeightNaming::kLlama;
  bool rotary_pairs = false;  ///< Rotates adjacent elements; other architectures rotate halves.
  Activation activation = Activation::kSilu;
  NormKind norm = NormKind::kRms;
  FfnKind ffn_kind = FfnKind::kGated;
  NormPlace norm_place = NormPlace::kBefore;
  bool qk_norm_whole = false;
  bool longrope = false, partial_rotation = false;
  bool rope_switch = false;          ///< "rope.scaling.finetuned": false means no rotation at all.
  std::int64_t unrotated_every = 0;  ///< Every n-th layer has no rotary positions.
  std::int64_t full_every = 0;       ///< Every n-th layer has no window; 0: all have the same.
  bool gemma = false;                ///< Norms of 1 + weight, scaled embeddings.
  bool windows = true;               ///< Files may have windows. (OLMo 3 has the name olmo2.)
  std::int32_t window = 0;           ///< The window that llama.cpp takes if a file has none.
  double local_theta = 0.0;  ///< The usual base in layers with a window; 0: one base for all.
  /// Models with this number of layers scale queries by dim / heads; 0: none do.
  std::int64_t layers_scaled_by_width = 0;
  std::span<const GgufNumber> numbers{};  ///< The keys of numbers that only some models have.

  /// The config.query_scalar that GGUF implies for a model.
  float query_scalar(const TransformerConfig& config) const;
  /// The key of the norms' epsilon, after "<architecture>.".
  std::string_view epsilon_key() const {
    return norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon"
                                  : "attention.layer_norm_epsilon";
  }
  /// Sets the fields that no key and no tensor of a file contains. Set sizes and the window before.
  void set_implied(TransformerConfig& config) const;
};
/// kUnsupported, with a list of Volta's architectures, for a name that is not one of them.
Result<const GgufArchitecture*> find_gguf_architecture(std::string_view name);

/// The place of one parameter in GGUF.
struct GgufPlace {
  std::string name;
  GgufLayout layout = GgufLayout::kSame;
};

/// The architecture under which a model is written. kUnsupported, with the reason, for a model that
/// no architecture describes.
Result<const GgufArchitecture*> gguf_architecture(const TransformerConfig& config);

/// The place of the parameter with this Hugging Face name. Its name is empty if GGUF has none.
GgufPlace gguf_place(const GgufArchitecture& architecture, std::string_view parameter);

/// The shape of a parameter in GGUF (outermost axis first, as everywhere in Volta).
Shape gguf_shape(GgufLayout layout, const Shape& shape);

/// For kRotaryPairs: the row of Hugging Face that is stored at row `row` of GGUF. GGUF's row 2 * j
/// + c (c = 0, 1) of a head is row c * half + j here.
std::int64_t gguf_row_source(std::int64_t row, std::int64_t head_dim);

}  // namespace volta
