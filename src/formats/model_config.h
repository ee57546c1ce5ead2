// config.json: translates between the keys of the Hugging Face hub and TransformerConfig.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "nn/transformer_config.h"
#include "tensor/dtype.h"

namespace [[gnu::visibility("default")]] volta {

/// The architecture in a config.json of a known family (docs/models.md), or in Volta's own keys.
/// kInvalidFile for missing or absurd values, or family keys that contradict Volta's own;
/// kUnsupported for other architectures or options.
Result<TransformerConfig> parse_model_config(std::string_view json, std::string_view name);
/// A config.json for an architecture. Where a known family can express it the keys are that
/// family's, so that other tools open the folder; Volta's own keys are always added.
/// `weights` is the type that the weights beside it are stored in.
std::string model_config_json(const TransformerConfig& config, DType weights = DType::kF32);

/// The Hugging Face family whose keys and names can say all of this architecture, e.g. "llama";
/// "volta" when none can.
std::string_view model_family(const TransformerConfig& config);

/// Volta's own keys as one JSON object: every field by its name, and back. What is read has known
/// types and words; whether it makes a model is for validate() to say. kInvalidFile.
void write_config_fields(JsonWriter& json, const TransformerConfig& config);
Result<TransformerConfig> parse_config_fields(const JsonRef& ref);

/// The architecture of DIR/config.json, or of a .gguf file.
Result<TransformerConfig> load_model_config(const std::string& directory);

}  // namespace volta
