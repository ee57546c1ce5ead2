// Model folders in the layout of the Hugging Face hub: config.json, model.safetensors,
// tokenizer.json. Translates between their keys and TransformerConfig.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "io/safetensors.h"
#include "io/tokenizer.h"
#include "nn/transformer.h"
#include "nn/transformer_config.h"

namespace volta {

/// The architecture in a config.json: gpt2, llama, mistral, qwen2, qwen3, or Volta's own keys.
/// kInvalidFile for missing or absurd values, or family keys that contradict Volta's own;
/// kUnsupported for other architectures or options.
Result<TransformerConfig> parse_model_config(std::string_view json, std::string_view name);
/// A config.json for an architecture. Where a known family can express it the keys are that
/// family's, so that other tools open the folder; Volta's own keys are always added.
std::string model_config_json(const TransformerConfig& config);

/// Volta's own keys as one JSON object: every field by its name, and back. What is read has known
/// types and words; whether it makes a model is for validate() to say. kInvalidFile.
void write_config_fields(JsonWriter& json, const TransformerConfig& config);
Result<TransformerConfig> parse_config_fields(const JsonRef& ref);

/// The architecture of DIR/config.json.
Result<TransformerConfig> load_model_config(const std::string& directory);

/// The file's tensors that are the model's parameters, in the order of parameters(). kInvalidFile,
/// naming it, for the first that is missing, of another shape, or of no parameter. Reads no data.
Result<std::vector<SafetensorsEntry>> find_parameters(const TransformerConfig& config,
                                                      const SafetensorsFile& file);

/// Loads DIR/config.json and DIR/model.safetensors onto a device, weights as f32.
Result<Transformer> load_model(const std::string& directory, std::shared_ptr<Device> device);

/// Writes config.json, model.safetensors and, if given, tokenizer.json into an existing folder,
/// each atomically. Biases that the family has and the model lacks are written as zeros.
Status save_model(const std::string& directory, const Transformer& model,
                  const Tokenizer* tokenizer);

}  // namespace volta
