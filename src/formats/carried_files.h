// What a model folder holds beside its architecture and weights: the family's own config keys,
// generation settings, tokenizer files, chat templates. A model made from another one takes them
// along, so that it can be used as its source was.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace volta {

/// Files by name, with what is to be written.
using CarriedFiles = std::map<std::string, std::string>;

/// The names of such files, but for config.json.
std::span<const std::string_view> carried_file_names();

/// One of these files, or config.json; nothing when the folder has none of the name. What is read
/// here is copied into folders that their owner may publish, and the folder may be a stranger's:
/// kInvalidFile for a symbolic link out of the folder (one into the blobs of the `models--*` folder
/// of the hub's cache that the model folder belongs to is followed) or to nothing, for more bytes
/// than such a file can need, and for JSON that is none.
Result<std::optional<std::string>> read_carried_file(const std::string& directory,
                                                     std::string_view name);

/// The files of a model folder that its offspring takes along: config.json with every key but the
/// type of the weights, which becomes f32, and the others byte for byte. kInvalidFile as
/// read_carried_file, kIo; kNotFound without a config.json.
Result<CarriedFiles> read_carried_files(const std::string& directory);

/// Writes them into an existing folder, each atomically.
Status write_carried_files(const std::string& directory, const CarriedFiles& files);

/// The same files and config.json into another existing folder, byte for byte.
Status copy_model_files(const std::string& from, const std::string& to);

/// A config.json with "float32" for its `dtype` and `torch_dtype`, where it has them.
Result<std::string> config_with_f32_weights(std::string_view json, std::string_view name);

}  // namespace volta
