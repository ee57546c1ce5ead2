// Stretched rotary positions in GGUF: linear and yarn as metadata, llama3 and longrope as tensors
// of factors.
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

/// The tensor by whose values ggml divides the frequencies of llama3's scaling.
inline constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";
/// Those of longrope's.
inline constexpr std::string_view kGgufLongFactors = "rope_factors_long.weight";
inline constexpr std::string_view kGgufShortFactors = "rope_factors_short.weight";

/// Sets config.rope_scaling; theta, sizes and context are there. The numbers of llama3's scaling
/// are found from its factors, so that they give these factors. kUnsupported for other kinds, and
/// for factors that no such numbers give.
Status read_gguf_rope(const GgufFile& file, const GgufArchitecture& architecture,
                      TransformerConfig& config);

/// Adds the metadata of config.rope_scaling.
void add_gguf_rope(const TransformerConfig& config, const GgufArchitecture& architecture,
                   GgufMetadata& metadata);

/// A tensor of factors.
struct GgufFactors {
  std::string_view tensor;
  std::vector<float> values;
};
/// Those of config.rope_scaling; empty when it needs none.
std::vector<GgufFactors> gguf_rope_factors(const TransformerConfig& config);

}  // namespace volta
