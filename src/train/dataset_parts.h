// What the readers of texts, token ids and conversations share. Internal to train/dataset.
#pragma once

#include <cstddef>
#include <expected>
#include <span>
#include <string>
#include <string_view>

#include "base/memory.h"
#include "base/result.h"
#include "base/work_budget.h"
#include "text/tokenizer.h"
#include "train/data.h"
#include "train/dataset.h"

namespace volta {

/// Adds the file's name to an error. A text that a tokenizer cannot encode is an error in the file,
/// not in the caller's arguments.
std::unexpected<Error> in_file(const Error& error, const std::string& path);
/// kInvalidFile for text that is not UTF-8: a Hugging Face tokenizer replaces each invalid byte by
/// U+FFFD, so a model would be trained or scored on another text than the file's. With the byte
/// tokenizer every file is accepted, but a text in UTF-16 with a warning. `before` is the number of
/// bytes of the file before `text`.
Status check_utf8(std::string_view text, const Tokenizer& tokenizer, const std::string& path,
                  std::size_t before = 0);
/// The same, whatever the tokenizer.
Status check_utf8(std::string_view text, const std::string& path, std::size_t before = 0);
/// The name of a run's data in messages: its file, or the first one and how many follow.
std::string name_of(std::span<const std::string> paths);
/// The hash of a file as a run keeps it, in hexadecimal digits. The errors of hash_file().
Result<std::string> file_hash(const MappedFile& file, const Interruption& interrupted);
/// The hash of a run's data: that of its file, or, for several files, that of their hashes.
std::string hash_of(std::span<const std::string> hashes);
/// The number of tokens before the last `fraction` of them.
std::ptrdiff_t split_place(std::size_t tokens, double fraction);
/// Makes mapped tokens those of a dataset: the last `fraction` of them, but at most
/// kMostMappedValidation, is read for validation, and the rest is for training. kInvalidFile if the
/// file has changed since it was mapped.
Status use_mapped(MappedTokens tokens, double fraction, Dataset& data);

}  // namespace volta
