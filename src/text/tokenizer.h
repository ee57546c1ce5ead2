// Tokenizers: text to ids and back. Byte and character vocabularies, stored as a tokenizer.json
// that other tools open too (a BPE model without merges), and everybody else's tokenizer.json
// (text/tokenizers/hf_tokenizer.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/work_budget.h"
#include "text/quoted_text.h"

namespace [[gnu::visibility("default")]] volta {

/// Text as tokens arrive. All pushes and finish() together give the text of the tokens; none gives
/// a part of a character.
class TextStream {
 public:
  virtual ~TextStream() = default;
  virtual std::string push(std::int32_t id) = 0;
  /// What is left at the end.
  virtual std::string finish() = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// "byte", "char", "bpe", "unigram", "wordpiece" or "wordlevel".
  virtual std::string_view kind() const = 0;
  /// One more than the largest id.
  virtual std::int64_t vocab_size() const = 0;
  /// The ids of the text alone. kInvalidArgument when it holds something the vocabulary lacks,
  /// naming it and its place; kInvalidFile when the tokenizer's steps would make far more of it
  /// than it is, or take far too long, naming the step; kInterrupted.
  virtual Result<std::vector<std::int32_t>> encode(std::string_view text) const = 0;
  /// encode() of a chat's prompt: tokens that control a model (special ones, and all like
  /// "<|name|>") are found in what is not quoted, wholly, and nowhere else. Elsewhere their text is
  /// split like any other. kInvalidArgument also for text that is not UTF-8.
  virtual Result<std::vector<std::int32_t>> encode_quoted(const QuotedText& prompt) const {
    return encode(prompt.text);
  }
  /// encode() with the special tokens that the tokenizer puts around a text, e.g. <s> before it.
  virtual Result<std::vector<std::int32_t>> encode_prompt(std::string_view text) const {
    return encode(text);
  }
  /// The bytes of one token; empty for an id outside the vocabulary. A token of the byte vocabulary
  /// may be part of a character only: see StreamDecoder.
  virtual std::string_view token_bytes(std::int32_t id) const = 0;
  /// The text as tokenizer.json.
  virtual std::string to_json() const = 0;

  /// The tokens' text without special tokens, and with them. Here: all tokens' bytes together. Ids
  /// outside the vocabulary are left out. Cut short when interrupted.
  virtual std::string decode(std::span<const std::int32_t> ids) const;
  virtual std::string decode_all(std::span<const std::int32_t> ids) const { return decode(ids); }
  /// decode(), token by token; bytes that can never become UTF-8 are given as U+FFFD. Views this.
  virtual std::unique_ptr<TextStream> stream() const;
  /// The token that ends a text, where the tokenizer says which.
  virtual std::optional<std::int32_t> end_token() const { return std::nullopt; }
};

/// The 256 bytes; id = byte.
std::shared_ptr<const Tokenizer> make_byte_tokenizer();
/// The characters (code points) of a text, in the order of their code points. kInvalidArgument when
/// the text is empty or not UTF-8, with the place. `interrupted`: as for parse_tokenizer().
Result<std::shared_ptr<const Tokenizer>> make_char_tokenizer(std::string_view text,
                                                             Interruption interrupted = {});
/// Whether make_tokenizer() knows the kind.
bool is_tokenizer_kind(std::string_view kind);

/// Reads a tokenizer.json; `config` is the tokenizer_config.json beside it, empty when there is
/// none. kInvalidFile, kUnsupported for parts that Volta does not know.
/// `interrupted` is asked now and then, while it is read and by everything that the tokenizer does
/// later, from whichever thread does it; both end with kInterrupted when it says so.
Result<std::shared_ptr<const Tokenizer>> parse_tokenizer(std::string_view json,
                                                         std::string_view name,
                                                         std::string_view config = "",
                                                         Interruption interrupted = {});

/// Encodes and decodes a short text of several scripts, as whoever uses the tokenizer will. Fails
/// where that does with kInvalidFile or kInterrupted; a vocabulary may lack characters.
Status try_tokenizer(const Tokenizer& tokenizer);

/// A TextStream that keeps its tokenizer alive.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)), stream_(tokenizer_->stream()) {}
  std::string push(std::int32_t id) { return stream_->push(id); }
  std::string finish() { return stream_->finish(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<TextStream> stream_;
};

}  // namespace volta
