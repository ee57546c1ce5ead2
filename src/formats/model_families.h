// The keys of config.json in each family of the Hugging Face hub, and the values of missing keys.
// Does not know Volta's own keys.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "nn/transformer_config.h"

namespace volta {

/// Parses the architecture from the keys of the family `type`: gpt2, or a row of the table of
/// families. Missing keys have the values that the family's own tools use. kInvalidFile for wrong
/// types, contradictions and keys that only other families have; kUnsupported for other families
/// and options. validate() checks the sizes.
Result<TransformerConfig> parse_family(const JsonRef& root, std::string_view type);
/// Writes the family's keys, except for those that all families have; writes nothing for "volta".
void write_family(JsonWriter& json, const TransformerConfig& config, std::string_view type);

/// The name of the transformers class that reads the family's folders.
std::string_view family_class(std::string_view type);

/// Sets the activation and its scale from their name on the hub. kUnsupported for unknown names.
Status parse_activation(const JsonRef& ref, std::string_view key, std::string_view fallback,
                        TransformerConfig& config);
/// The activation's name on the hub; empty when it has none.
std::string_view activation_name(const TransformerConfig& config);

}  // namespace volta
