// Converts GGUF files to Hugging Face folders and back, one tensor at a time, so that only the
// largest tensor must fit in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/function_ref.h"
#include "base/result.h"
#include "formats/gguf/ggml_types.h"
#include "formats/model_source.h"
#include "tensor/dtype.h"

namespace [[gnu::visibility("default")]] volta {

/// Called before each tensor, and every few milliseconds while it is converted. When it returns
/// false, the conversion ends (kInterrupted) and leaves no files behind.
using ConvertProgress = FunctionRef<bool(std::size_t done, std::size_t all)>;

/// Writes config.json and model.safetensors (f32, bf16 or f16) of a .gguf file. If it contains
/// them, also writes tokenizer.json, tokenizer_config.json and generation_config.json. The folder
/// appears complete or not at all. An existing folder is refused (kInvalidArgument) unless it is
/// empty, or `replace` allows replacing the model in it (see NewFolder::create). kInvalidArgument
/// when the source is a folder. The errors of check_source_stays. kNonFinite, with the tensor's
/// name, for NaN or infinity.
Status gguf_to_folder(const ModelSource& source, const std::string& directory, DType dtype,
                      bool replace, ConvertProgress progress);

/// Writes a GGUF file of the model in a folder, with matrices of `type`, or each in the type that
/// the folder has (f32, bf16 or f16) if there is none; a matrix whose rows are not a whole number
/// of blocks becomes F16. Vectors and learned positions are F32. Folders above the file that do not
/// exist are made, when everything but the weights is checked. An existing file, and one that
/// appears during the work, is refused unless `replace`. kInvalidArgument when the source is a
/// .gguf file. Returns false when the tokenizer could be stored as tokenizer.json only (see
/// add_gguf_tokenizer).
Result<bool> folder_to_gguf(const ModelSource& source, const std::string& gguf,
                            std::optional<GgmlType> type, bool replace, ConvertProgress progress);

}  // namespace volta
