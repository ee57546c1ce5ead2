// Writes model folders in the layout of the Hugging Face hub: config.json (formats/model_config.h),
// model.safetensors, tokenizer.json (text/tokenizer.h). ModelSource reads them.
#pragma once

#include <string>

#include "base/result.h"
#include "base/work_budget.h"
#include "nn/transformer.h"
#include "text/tokenizer.h"

namespace [[gnu::visibility("default")]] volta {

/// Writes config.json, model.safetensors and, if given, tokenizer.json into an existing folder,
/// each file atomically. A tokenizer.json comes with a tokenizer_config.json that makes
/// transformers use it unchanged. Biases that the family has and the model lacks are written as
/// zeros. kInterrupted when `interrupted` returned true while the weights were written.
Status save_model(const std::string& directory, const Transformer& model,
                  const Tokenizer* tokenizer, const Interruption& interrupted = {});

}  // namespace volta
