// Scaled rotary positions in GGUF: linear and yarn are stored as metadata, llama3 and longrope as
// tensors of factors.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf/gguf_file.h"
#include "formats/gguf/gguf_layout.h"
#include "formats/gguf/gguf_writer.h"
#include "nn/transformer_config.h"

namespace volta {

/// The tensor with the factors of llama3's scaling. ggml divides the frequencies by its values.
inline constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";
/// The tensors with the factors of longrope.
inline constexpr std::string_view kGgufLongFactors = "rope_factors_long.weight";
inline constexpr std::string_view kGgufShortFactors = "rope_factors_short.weight";

/// Sets config.rope_scaling; theta, sizes and context must be set. The parameters of llama3's
/// scaling are derived from its factors so that they reproduce these factors. kUnsupported for
/// other kinds, and for factors that no such parameters reproduce.
Status read_gguf_rope(const GgufFile& file, const GgufArchitecture& architecture,
                      TransformerConfig& config);

/// Adds the metadata for config.rope_scaling.
void add_gguf_rope(const TransformerConfig& config, const GgufArchitecture& architecture,
                   GgufMetadata& metadata);

/// A tensor of factors.
struct GgufFactors {
  std::string_view tensor;
  std::vector<float> values;
};
/// The tensors of factors for config.rope_scaling; empty when it needs none.
std::vector<GgufFactors> gguf_rope_factors(const TransformerConfig& config);

}  // namespace volta
