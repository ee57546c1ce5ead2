// What a model folder holds beside its architecture and weights: the family's own config keys,
// generation settings, tokenizer files, chat templates. A model made from another one takes them
// along, so that it can be used as its source was.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace volta {

/// Files by name, with what is to be written.
using CarriedFiles = std::map<std::string, std::string>;

/// The files of a model folder that its offspring takes along: config.json with every key but the
/// type of the weights, which becomes f32, and the others byte for byte. kInvalidFile, kIo.
Result<CarriedFiles> read_carried_files(const std::string& directory);

/// Writes them into an existing folder, each atomically.
Status write_carried_files(const std::string& directory, const CarriedFiles& files);

/// A config.json with "float32" for its `dtype` and `torch_dtype`, where it has them.
Result<std::string> config_with_f32_weights(std::string_view json, std::string_view name);

}  // namespace volta
