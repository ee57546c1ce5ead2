// What a model folder holds beside its architecture and weights: the family's own config keys,
// generation settings, tokenizer files, chat templates. A model made from another one takes them
// along, so that it can be used as its source was.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace volta {

/// Files by name, with what is to be written.
using CarriedFiles = std::map<std::string, std::string>;

/// The names of such files, but for config.json.
std::span<const std::string_view> carried_file_names();

/// The files of a model folder that its offspring takes along: config.json with every key but the
/// type of the weights, which becomes f32, and the others byte for byte. kInvalidFile, kIo.
Result<CarriedFiles> read_carried_files(const std::string& directory);

/// Writes them into an existing folder, each atomically.
Status write_carried_files(const std::string& directory, const CarriedFiles& files);

/// The same files and config.json into another existing folder, byte for byte.
Status copy_model_files(const std::string& from, const std::string& to);

/// A config.json with "float32" for its `dtype` and `torch_dtype`, where it has them.
Result<std::string> config_with_f32_weights(std::string_view json, std::string_view name);

}  // namespace volta
