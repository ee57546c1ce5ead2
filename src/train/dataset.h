// Dataset: the files that a run trains on, checked and converted to token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"
#include "train/chat_data.h"
#include "train/data.h"

namespace [[gnu::visibility("default")]] volta {

/// What the files of a run hold: text, rows of token ids (X.safetensors), a text as token ids of 16
/// bits (X.bin), or conversations (X.jsonl).
enum class DataKind : std::uint8_t { kText, kTokenIds, kTokenStream, kChats };
DataKind data_kind(std::string_view path);

/// The most tokens that are kept for validation of files that are mapped, because these are held in
/// memory.
inline constexpr std::int64_t kMostMappedValidation = std::int64_t{1} << 26;

/// The files of a run, all of one kind.
struct DataFiles {
  std::vector<std::string> train;
  /// To validate with. When it is empty, a part of every text, or of the conversations, is used.
  std::string validation = {};
  double val_fraction = 0.0;  ///< That part.
  /// Texts of more bytes in all are mapped, and their token ids are written to a temporary file
  /// beside `scratch` (a path whose parent folder is made if it is missing). They are encoded in
  /// pieces of at most 64 MiB, or as many bytes as this, which end with a line.
  std::int64_t most_in_memory = std::int64_t{1} << 31;
  std::string scratch = {};
};

/// How much was read from where; compared when a run is resumed.
struct DataOrigin {
  std::string path;        ///< For messages; of several files, the first and how many more.
  std::int64_t bytes = 0;  ///< Of all files.
  std::string xxh3;        ///< Of the file; of several, the hash of their hashes.
};

/// Token ids to train on and to validate with.
struct Dataset : DataOrigin {
  std::optional<DataOrigin> validation_file;  ///< If validation has a file of its own.

  std::shared_ptr<const Tokenizer> tokenizer;  ///< Null for ready-made examples without one.
  std::int64_t tokens = 0;                     ///< In all files to train on.
  bool is_text = false;  ///< The files are texts, which `tokenizer` has encoded.
  // From texts: the first part of each is for training, the rest for validation (may be empty).
  std::shared_ptr<const std::vector<std::int32_t>> train;
  std::shared_ptr<const std::vector<std::int32_t>> validation;
  // From X.bin, and from texts that are too long for memory: the first `mapped_train` of the mapped
  // tokens are for training.
  std::shared_ptr<const MappedTokens> mapped;
  std::int64_t mapped_train = 0;
  // From X.safetensors: `examples` rows of example_length + 1 ids.
  std::vector<std::int32_t> rows;
  std::int64_t examples = 0;
  std::int64_t example_length = 0;

  // From X.jsonl: conversations, not yet in rows.
  std::vector<ChatExample> chats;
  std::vector<ChatExample> validation_chats;
  /// Validation data of ready-made examples or conversations; null if there is no validation.
  std::shared_ptr<const LabelledRows> validation_rows;

  /// A checksum of the token ids to train on: of all that are in memory, or of the first 2^20 of a
  /// mapped file. It differs after a change of the files, the tokenizer or the chat template.
  std::string ids_xxh3() const;

  std::int64_t train_tokens() const { return mapped ? mapped_train : std::ssize(*train); }
  bool has_examples() const { return examples > 0; }
  bool has_chats() const { return !chats.empty(); }
};

/// Reads texts and splits them into training and validation tokens, see load_text(). A tokenizer
/// that is made from the text is made from all of it. Of texts that are too long for memory, at
/// most kMostMappedValidation tokens are for validation.
Result<Dataset> load_texts(const DataFiles& files, std::string_view kind,
                           std::shared_ptr<const Tokenizer> tokenizer,
                           const Interruption& interrupted = {});
/// Reads one text and splits it into training and validation tokens. When `tokenizer` is null,
/// make_tokenizer() makes one of `kind` from the text, and `interrupted` can stop it (see
/// parse_tokenizer()). Errors name the file and the remedy: kNotFound, kIo; kInvalidFile for a
/// folder or device, an empty text, text that is not UTF-8 (except with the byte tokenizer) and
/// characters that a given tokenizer lacks.
Result<Dataset> load_text(const std::string& path, std::string_view kind,
                          std::shared_ptr<const Tokenizer> tokenizer, double val_fraction,
                          const Interruption& interrupted = {});

/// A text to evaluate a model on.
struct HeldOutText {
  std::vector<std::int32_t> tokens;
  std::int64_t bytes = 0;  ///< Length of the text that the tokens encode.
};
/// The whole text with the special tokens that the tokenizer puts around it. With a `fraction`
/// below 1, only the tokens that load_text() would keep for validation. `interrupted` can stop the
/// reading of the file. The errors of load_text(), kInvalidFile for fewer than two tokens, and
/// kInvalidArgument for a fraction outside (0, 1].
Result<HeldOutText> load_held_out_text(const std::string& path, const Tokenizer& tokenizer,
                                       double fraction = 1.0, const Interruption& interrupted = {});

/// The same for a text that is in memory, with its name for messages.
Result<HeldOutText> hold_out_text(const std::string& text, const std::string& name,
                                  const Tokenizer& tokenizer, double fraction = 1.0);

/// Reads conversations. Validation gets a part of them that the seed chooses. The errors of
/// parse_chats(), and kInvalidFile when a file changes while it is read.
Result<Dataset> load_chats(const DataFiles& files, const ChatRenderer& renderer,
                           std::uint64_t seed);

/// Opens a file of 16-bit token ids, one file only, without reading it as a whole into memory. Its
/// last part, or all of the file for validation, is read for validation. Every id must be below
/// vocab_size. kInvalidFile if one is not, kInvalidArgument if there are several files, or if the
/// validation file has more than kMostMappedValidation ids; the errors of MappedTokens::open() and
/// hash_file().
Result<Dataset> load_token_stream(const DataFiles& files, std::int64_t vocab_size,
                                  const Interruption& interrupted = {});

/// kInvalidArgument when the training or the validation part is shorter than `time` + 1 tokens.
Status check_lengths(const Dataset& data, std::int64_t time);

/// Reads the tensors `input_ids` [N, T + 1] of files X.safetensors; every id must be in
/// [0, vocab_size), and T the same in all files. The errors of load_token_rows() and hash_file().
Result<Dataset> load_examples(const DataFiles& files, std::int64_t vocab_size,
                              const Interruption& interrupted = {});

}  // namespace volta
