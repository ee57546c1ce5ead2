// Stretched rotary positions in GGUF: linear and yarn as metadata, llama3 as a tensor of factors.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/gguf/gguf_file.h"
#include "io/gguf/gguf_writer.h"
#include "nn/transformer_config.h"

namespace volta {

/// The tensor by whose values ggml divides the frequencies of llama3's scaling.
inline constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";

/// Sets config.rope_scaling; theta, sizes and context are there. The numbers of llama3's scaling
/// are found from its factors, so that they give these factors. kUnsupported for other kinds, and
/// for factors that no such numbers give.
Status read_gguf_rope(const GgufFile& file, std::string_view architecture,
                      TransformerConfig& config);

/// Adds the metadata of config.rope_scaling.
void add_gguf_rope(const TransformerConfig& config, std::string_view architecture,
                   GgufMetadata& metadata);
/// The values of kGgufRopeFactors; empty when the scaling needs none.
std::vector<float> gguf_rope_factors(const TransformerConfig& config);

}  // namespace volta
