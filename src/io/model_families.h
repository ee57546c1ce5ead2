// The keys of a config.json that each family of the Hugging Face hub has, and what they mean when
// they are missing. Knows nothing of Volta's own keys.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "nn/transformer_config.h"

namespace volta {

/// The architecture in the keys of the family `type`: gpt2, llama, mistral, ministral (a mistral
/// with layer_types), qwen2 or qwen3. Missing keys mean what the family's own tools take them to
/// mean. kInvalidFile for wrong types and contradictions, kUnsupported for other families and
/// options; sizes are for validate() to judge.
Result<TransformerConfig> parse_family(const JsonRef& root, std::string_view type);
/// The family's keys, but for those that all have; nothing for "volta".
void write_family(JsonWriter& json, const TransformerConfig& config, std::string_view type);

/// Sets the activation and its scale from the hub's name for it. kUnsupported for unknown names.
Status parse_activation(const JsonRef& ref, std::string_view key, std::string_view fallback,
                        TransformerConfig& config);
/// The hub's name; empty when it has none.
std::string_view activation_name(const TransformerConfig& config);

}  // namespace volta
