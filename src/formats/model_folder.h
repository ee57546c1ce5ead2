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

/// Loads the model of a folder or a .gguf file onto a device. The weights become f32, or, with
/// options.packed, the form for inference only (see WeightOptions). kInterrupted soon after the
/// device received a request to stop.
Result<Transformer> load_model(const std::string& directory, std::shared_ptr<Device> device,
                               const WeightOptions& options = {});

/// Opens the weights of a model folder or a .gguf file whose architecture is `config`.
Result<std::unique_ptr<WeightSource>> open_weights(const std::string& model,
                                                   const TransformerConfig& config);

/// Writes config.json, model.safetensors and, if given, tokenizer.json into an existing folder,
/// each file atomically. A tokenizer.json comes with a tokenizer_config.json that makes
/// transformers use it unchanged. Biases that the family has and the model lacks are written as
/// zeros. kInterrupted when `interrupted` returned true while the weights were written.
Status save_model(const std::string& directory, const Transformer& model,
                  const Tokenizer* tokenizer, const Interruption& interrupted = {});

}  // namespace volta
