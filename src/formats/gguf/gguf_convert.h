// Between GGUF files and Hugging Face folders, one tensor at a time: the memory needed is that of
// the largest one.
#pragma once

#include <cstdint>
#include <string>

#include "base/function_ref.h"
#include "base/result.h"
#include "formats/gguf/ggml_types.h"
#include "tensor/dtype.h"

namespace [[gnu::visibility("default")]] volta {

/// Called before each tensor, and every few milliseconds while it is converted; false ends the
/// conversion (kInterrupted), leaving nothing behind.
using ConvertProgress = FunctionRef<bool(std::size_t done, std::size_t all)>;

/// Writes config.json, model.safetensors (f32, bf16 or f16), and, as far as the file has them,
/// tokenizer.json, tokenizer_config.json and generation_config.json. The folder appears whole or
/// not at all. One that is there is refused (kInvalidArgument) unless it is empty or `replace` says
/// that the model in it may be replaced (see NewFolder::create). The errors of check_source_stays.
/// kNonFinite, naming the tensor, for NaN or infinity.
Status gguf_to_folder(const std::string& gguf, const std::string& directory, DType dtype,
                      bool replace, ConvertProgress progress);

/// Writes a GGUF file whose matrices are of `type` (F16 where a row is no whole number of blocks);
/// vectors and learned positions are F32. An existing file is refused unless `replace`. False when
/// the tokenizer could only be stored as tokenizer.json (see add_gguf_tokenizer).
Result<bool> folder_to_gguf(const std::string& directory, const std::string& gguf, GgmlType type,
                            bool replace, ConvertProgress progress);

}  // namespace volta
