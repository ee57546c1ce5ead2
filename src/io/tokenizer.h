// Tokenizers: text to ids and back. Byte and character vocabularies, stored as a tokenizer.json
// that other tools open too (a BPE model without merges).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace volta {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// "byte" or "char".
  virtual std::string_view kind() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  /// kInvalidArgument when the text holds something the vocabulary lacks, naming it and its place.
  virtual Result<std::vector<std::int32_t>> encode(std::string_view text) const = 0;
  /// The bytes of one token; empty for an id outside the vocabulary. A token of the byte vocabulary
  /// may be part of a character only: see StreamDecoder.
  virtual std::string_view token_bytes(std::int32_t id) const = 0;
  /// The text as tokenizer.json.
  virtual std::string to_json() const = 0;

  /// All tokens' bytes together.
  std::string decode(std::span<const std::int32_t> ids) const;
};

/// The 256 bytes; id = byte.
std::shared_ptr<const Tokenizer> make_byte_tokenizer();
/// The characters (code points) of a text, in the order of their code points. kInvalidArgument when
/// the text is empty or not UTF-8, with the place.
Result<std::shared_ptr<const Tokenizer>> make_char_tokenizer(std::string_view text);
/// "byte" or "char" for a text; kInvalidArgument with the list for another kind.
Result<std::shared_ptr<const Tokenizer>> make_tokenizer(std::string_view kind,
                                                        std::string_view text);

/// Reads a tokenizer.json as to_json() wrote it. kInvalidFile for anything else.
Result<std::shared_ptr<const Tokenizer>> parse_tokenizer(std::string_view json,
                                                         std::string_view name);
/// DIR/tokenizer.json. kNotFound when there is none.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& directory);

/// Text as tokens arrive: holds back the bytes of an unfinished character.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}
  /// The text that is complete after this token; bytes that can never become UTF-8 are given as
  /// U+FFFD.
  std::string push(std::int32_t id);
  /// What is left at the end.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string pending_;
};

}  // namespace volta
