// The keys of a config.json that each family of the Hugging Face hub has, and what they mean when
// they are missing. Knows nothing of Volta's own keys.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "nn/transformer_config.h"

namespace volta {

/// The architecture in the keys of the family `type`: gpt2, or a row of the table of families.
/// Missing keys mean what the family's own tools take them to mean. kInvalidFile for wrong types,
/// contradictions and keys that only other families have, kUnsupported for other families and
/// options; sizes are for validate() to judge.
Result<TransformerConfig> parse_family(const JsonRef& root, std::string_view type);
/// The family's keys, but for those that all have; nothing for "volta".
void write_family(JsonWriter& json, const TransformerConfig& config, std::string_view type);

/// The class of transformers that reads a family's folders.
std::string_view family_class(std::string_view type);

/// Sets the activation and its scale from the hub's name for it. kUnsupported for unknown names.
Status parse_activation(const JsonRef& ref, std::string_view key, std::string_view fallback,
                        TransformerConfig& config);
/// The hub's name; empty when it has none.
std::string_view activation_name(const TransformerConfig& config);

}  // namespace volta
