// Tokenizers convert text to ids and back. There are byte and character vocabularies, stored as a
// tokenizer.json that other tools can read (a BPE model without merges), and the tokenizer.json of
// other models (text/tokenizers/hf_tokenizer.h).
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

/// Decodes tokens to text as they arrive. What all push() calls and finish() append is the text of
/// the tokens. No call appends a part of a character.
class TextStream {
 public:
  virtual ~TextStream() = default;
  /// Appends the text that this token completes.
  virtual void push(std::int32_t id, std::string& text) = 0;
  /// Appends the remaining text at the end.
  virtual void finish(std::string& text) = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// "byte", "char", "bpe", "unigram", "wordpiece" or "wordlevel".
  virtual std::string_view kind() const = 0;
  /// One more than the largest id.
  virtual std::int64_t vocab_size() const = 0;
  /// The ids of the text, without special tokens around it. kInvalidArgument when the vocabulary
  /// lacks a part of the text, with the part and its place. kInvalidFile when a step of the
  /// tokenizer would lengthen the text far too much or take far too long, with the name of the
  /// step. kInterrupted.
  virtual Result<std::vector<std::int32_t>> encode(std::string_view text) const = 0;
  /// encode() for the prompt of a chat. Control tokens (special tokens, and all tokens like
  /// "<|name|>") are found only where none of their bytes is quoted. Elsewhere their text is split
  /// like any other text. kInvalidArgument also for invalid UTF-8.
  virtual Result<std::vector<std::int32_t>> encode_quoted(const QuotedText& prompt) const {
    return encode(prompt.text);
  }
  /// encode() plus the special tokens that the tokenizer puts around a text, e.g. <s> before it.
  virtual Result<std::vector<std::int32_t>> encode_prompt(std::string_view text) const {
    return encode(text);
  }
  /// The bytes of one token; empty for an id outside the vocabulary. A token of the byte vocabulary
  /// may be only a part of a character; see StreamDecoder.
  virtual std::string_view token_bytes(std::int32_t id) const = 0;
  /// The content of a tokenizer.json for this tokenizer.
  virtual std::string to_json() const = 0;

  /// The text of the tokens, without special tokens and with them. This base class joins the bytes
  /// of all tokens. Ids outside the vocabulary are skipped. The text ends early when interrupted.
  virtual std::string decode(std::span<const std::int32_t> ids) const;
  virtual std::string decode_all(std::span<const std::int32_t> ids) const { return decode(ids); }
  /// decode() token by token. Bytes that cannot become UTF-8 are returned as U+FFFD. The stream
  /// refers to this tokenizer.
  virtual std::unique_ptr<TextStream> stream() const;
  /// The token that ends a text, if the tokenizer defines one.
  virtual std::optional<std::int32_t> end_token() const { return std::nullopt; }
};

/// A vocabulary of the 256 bytes, with id = byte.
std::shared_ptr<const Tokenizer> make_byte_tokenizer();
/// A vocabulary of the characters (code points) of a text, in the order of their code points.
/// kInvalidArgument when the text is empty or not UTF-8, with the place. `interrupted`: as in
/// parse_tokenizer().
Result<std::shared_ptr<const Tokenizer>> make_char_tokenizer(std::string_view text,
                                                             Interruption interrupted = {});
/// Whether make_tokenizer() accepts the kind.
bool is_tokenizer_kind(std::string_view kind);

/// Parses a tokenizer.json. `config` is the tokenizer_config.json beside it, or empty when there is
/// none. kInvalidFile; kUnsupported for parts that Volta does not have. `interrupted` is called
/// regularly, both here and in all later work of the tokenizer, on the thread that does the work.
/// When it returns true, the work ends with kInterrupted.
Result<std::shared_ptr<const Tokenizer>> parse_tokenizer(std::string_view json,
                                                         std::string_view name,
                                                         std::string_view config = "",
                                                         Interruption interrupted = {});

/// Loads a tokenizer.json, or that of a folder, with the tokenizer_config.json beside it. kNotFound
/// when there is none, and the errors of parse_tokenizer(). ModelSource::tokenizer() also reads the
/// tokenizers of .gguf files.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& path,
                                                        Interruption interrupted = {});

/// Makes a tokenizer: "byte" or "char" for a text, or loads the tokenizer.json at the path `kind`.
/// kInvalidArgument for another kind.
Result<std::shared_ptr<const Tokenizer>> make_tokenizer(std::string_view kind,
                                                        std::string_view text,
                                                        Interruption interrupted = {});

/// Encodes and decodes a short text and two of 32 KiB, in several scripts, to find errors before
/// the tokenizer is used. Takes some milliseconds. Fails if encoding fails with kInvalidFile or
/// kInterrupted. Characters that the vocabulary lacks are not an error.
Status try_tokenizer(const Tokenizer& tokenizer);

/// A TextStream that keeps its tokenizer alive and returns each piece of the text. Use
/// CompletionStream for the text behind a prompt.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)), stream_(tokenizer_->stream()) {}
  std::string push(std::int32_t id) {
    std::string piece;
    stream_->push(id, piece);
    return piece;
  }
  std::string finish() {
    std::string piece;
    stream_->finish(piece);
    return piece;
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<TextStream> stream_;
};

}  // namespace volta
