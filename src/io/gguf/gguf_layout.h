// How GGUF names and arranges a model's parameters: Hugging Face names to ggml's, and the order in
// which the values lie. Knows no file.
#pragma once

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
};

/// Where one parameter is found in GGUF.
struct GgufPlace {
  std::string name;
  GgufLayout layout = GgufLayout::kSame;
};

/// The architecture a GGUF file names: "gpt2", "llama", "qwen2" or "qwen3". kUnsupported for a
/// model that none of them describes, saying what is in the way.
Result<std::string_view> gguf_architecture(const TransformerConfig& config);

/// The place of the parameter with this Hugging Face name. An empty name when GGUF has none for it.
GgufPlace gguf_place(std::string_view architecture, std::string_view parameter);

/// The shape of a parameter as GGUF lists it (outermost axis first, as everywhere in Volta).
Shape gguf_shape(GgufLayout layout, const Shape& shape);

/// Of kRotaryPairs: which row of Hugging Face lies at row `row` of GGUF. A head's row 2 * j + c
/// (c = 0, 1) there is c * half + j here.
std::int64_t gguf_row_source(std::int64_t row, std::int64_t head_dim);

}  // namespace volta
