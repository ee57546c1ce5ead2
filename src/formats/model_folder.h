// Model folders in the layout of the Hugging Face hub: config.json (formats/model_config.h),
// model.safetensors or shards of it (formats/weight_files.h), tokenizer.json (text/tokenizer.h).
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/work_budget.h"
#include "formats/model_config.h"
#include "nn/transformer.h"
#include "nn/transformer_config.h"
#include "text/tokenizer.h"

namespace [[gnu::visibility("default")]] volta {

/// Loads the model of a folder or a .gguf file onto a device: its weights as f32, or, `packed`, as
/// a model keeps them that only runs. kInterrupted soon after the device was told to stop.
Result<Transformer> load_model(const std::string& directory, std::shared_ptr<Device> device,
                               const WeightOptions& options = {});

/// The weights of a model folder or a .gguf file, whose architecture is `config`.
Result<std::unique_ptr<WeightSource>> open_weights(const std::string& model,
                                                   const TransformerConfig& config);

/// Writes config.json, model.safetensors and, if given, tokenizer.json into an existing folder,
/// each atomically; with the latter a tokenizer_config.json that makes transformers use it as it
/// is. Biases that the family has and the model lacks are written as zeros. kInterrupted when
/// `interrupted` said so, which is asked while the weights are written.
Status save_model(const std::string& directory, const Transformer& model,
                  const Tokenizer* tokenizer, const Interruption& interrupted = {});

}  // namespace volta
