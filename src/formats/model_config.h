// config.json: translates between the keys of the Hugging Face hub and TransformerConfig.
// ModelSource::config() reads that of a model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "nn/transformer_config.h"
#include "tensor/dtype.h"

namespace [[gnu::visibility("default")]] volta {

/// No file of settings is larger, in bytes.
inline constexpr std::int64_t kMaxConfigBytes = std::int64_t{16} << 20;

/// Parses the architecture in a config.json, in the keys of a known family (docs/models.md) or in
/// Volta's own keys. kInvalidFile for missing or out-of-range values and for family keys that
/// contradict Volta's own; kUnsupported for other architectures or options.
Result<TransformerConfig> parse_model_config(std::string_view json, std::string_view name);
/// Returns a config.json for an architecture. If a known family can express it, the family's keys
/// are used, so that other tools can open the folder. Volta's own keys are always added. `weights`
/// is the type in which the folder stores its weights.
std::string model_config_json(const TransformerConfig& config, DType weights = DType::kF32);

/// The Hugging Face family whose keys and tensor names can express the whole architecture, e.g.
/// "llama"; "volta" when no family can.
std::string_view model_family(const TransformerConfig& config);

/// Writes and reads Volta's own keys as one JSON object with one key per field. Reading checks
/// types and words only; validate() checks whether the values make a model. kInvalidFile.
void write_config_fields(JsonWriter& json, const TransformerConfig& config);
Result<TransformerConfig> parse_config_fields(const JsonRef& ref);

}  // namespace volta
