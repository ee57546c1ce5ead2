// The files of a model folder beside its architecture and weights: the family's own config keys,
// generation settings, tokenizer files, chat templates. A model that is made from another one gets
// copies of them, so that it can be used in the same way as its source.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace volta {

/// File contents to be written, by file name.
using CarriedFiles = std::map<std::string, std::string>;

/// The names of all such files except config.json.
std::span<const std::string_view> carried_file_names();

/// Reads one of these files, or config.json; nothing when the folder has no file of that name. The
/// content is copied into folders that their owner may publish, and the folder may come from a
/// stranger. Therefore kInvalidFile for a symbolic link that leads nowhere or out of the folder,
/// for a file larger than its kind can need, and for invalid JSON. One kind of link out of the
/// folder is followed: a link into the blobs of the `models--*` folder of the hub's cache that the
/// model folder belongs to.
Result<std::optional<std::string>> read_carried_file(const std::string& directory,
                                                     std::string_view name);

/// Reads the files that a derived model gets: config.json with all its keys, except that the type
/// of the weights becomes f32, and the other files byte for byte. kInvalidFile as in
/// read_carried_file, kIo; kNotFound without a config.json.
Result<CarriedFiles> read_carried_files(const std::string& directory);

/// Writes them into an existing folder, each atomically.
Status write_carried_files(const std::string& directory, const CarriedFiles& files);

/// Copies the same files and config.json into another existing folder, byte for byte.
Status copy_model_files(const std::string& from, const std::string& to);

/// Returns a config.json whose `dtype` and `torch_dtype`, where present, are "float32".
Result<std::string> config_with_f32_weights(std::string_view json, std::string_view name);

}  // namespace volta
