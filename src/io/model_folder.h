// Model folders in the layout of the Hugging Face hub: config.json (io/model_config.h),
// model.safetensors, tokenizer.json (io/tokenizer.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/model_config.h"
#include "io/safetensors.h"
#include "io/tokenizer.h"
#include "nn/transformer.h"
#include "nn/transformer_config.h"

namespace volta {

/// The file's tensors that are the model's parameters, in the order of parameters(). kInvalidFile,
/// naming it, for the first that is missing, of another shape, or of no parameter. Reads no data.
Result<std::vector<SafetensorsEntry>> find_parameters(const TransformerConfig& config,
                                                      const SafetensorsFile& file);

/// Loads DIR/config.json and DIR/model.safetensors onto a device, weights as f32; or a .gguf file.
Result<Transformer> load_model(const std::string& directory, std::shared_ptr<Device> device);

/// Writes config.json, model.safetensors and, if given, tokenizer.json into an existing folder,
/// each atomically. Biases that the family has and the model lacks are written as zeros.
Status save_model(const std::string& directory, const Transformer& model,
                  const Tokenizer* tokenizer);

}  // namespace volta
