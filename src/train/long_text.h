// Texts that are too long to be held in memory, as token ids in a mapped file. Internal to
// train/dataset.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/work_budget.h"
#include "text/tokenizer.h"
#include "train/dataset.h"

namespace volta {

/// load_texts() for the files to train on, which are mapped. One text for the byte tokenizer is
/// used as it is. The ids of others are written to a temporary file beside DataFiles::scratch,
/// which is removed at once, so that the system frees its space when the process ends.
Result<Dataset> map_texts(const DataFiles& files, std::string_view kind,
                          std::shared_ptr<const Tokenizer> tokenizer,
                          const Interruption& interrupted);

// What both ways of reading texts share.

/// Adds the file's name to an error. A text that a tokenizer cannot encode is an error in the file,
/// not in the caller's arguments.
std::unexpected<Error> in_file(const Error& error, const std::string& path);
/// kInvalidFile for text that is not UTF-8. A Hugging Face tokenizer reads each such byte as
/// U+FFFD, so the model would learn or score a different text. The byte tokenizer takes any file.
Status check_utf8(std::string_view text, const Tokenizer& tokenizer, const std::string& path);
/// The files of a run in one word.
std::string name_of(std::span<const std::string> paths);
/// Of one file its hash, of several the hash of their hashes.
std::string hash_of(std::span<const std::string> hashes);
/// Where the last `fraction` of the tokens begins.
std::ptrdiff_t split_place(std::size_t tokens, double fraction);

}  // namespace volta
