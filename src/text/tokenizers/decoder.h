// Decoders convert the strings of tokens to text, token by token, so that text can be shown while
// it is generated. What all push() calls and finish() append is the text of all tokens. The kinds
// of decoders are those of tokenizer.json.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizers/normalizer.h"

namespace volta::tokenizers {

/// A token between two steps. A fused token consists of several chunks.
struct Chunk {
  std::string text;
  bool begins = true;  ///< The first chunk of a token.
};

/// Runs one step. It may hold chunks back; finish() returns the rest.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void push(Chunk chunk, std::vector<Chunk>& out) = 0;
  virtual void finish(std::vector<Chunk>& out) { static_cast<void>(out); }
};

/// Converts tokens from byte characters (byte_level.h) to bytes; invalid UTF-8 becomes U+FFFD.
struct ByteLevelDecode {};
/// Converts <0x41> tokens to bytes. In a run of them that is not UTF-8, each becomes a U+FFFD.
struct ByteFallbackDecode {};
/// Joins all tokens into one token.
struct FuseDecode {};
/// Removes a character from both ends of each token, up to a given number of times.
struct StripDecode {
  std::string content;
  std::size_t start = 0;
  std::size_t stop = 0;
};
struct WordPieceDecode {
  std::string prefix = "##";
  bool cleanup = true;  ///< Removes spaces before punctuation.
};
struct MetaspaceDecode {
  std::string replacement;
  bool drops_first = true;  ///< In the first token it is removed.
};
/// Replaces the suffix that marks the end of a word by a space; removes it from the last token.
struct BpeDecode {
  std::string suffix;
};
/// Joins tokens by spaces, for a tokenizer.json without a decoder.
struct SpacesDecode {};
using DecodeStep =
    std::variant<ByteLevelDecode, ByteFallbackDecode, FuseDecode, StripDecode, WordPieceDecode,
                 MetaspaceDecode, BpeDecode, SpacesDecode, ReplaceStep>;

class Decoder {
 public:
  /// Joins tokens by spaces, as for a tokenizer.json without a decoder.
  Decoder() : steps_{SpacesDecode{}} {}
  explicit Decoder(std::vector<DecodeStep> steps) : steps_(std::move(steps)) {}
  /// The "decoder" of a tokenizer.json. kInvalidFile, kUnsupported for an unknown kind.
  static Result<Decoder> parse(const JsonRef& json);

  /// Whether tokens are written in byte characters.
  bool is_byte_level() const;

  /// One run of the decoder, to which it refers.
  class Run {
   public:
    explicit Run(const Decoder& decoder);
    /// Appends the text that is complete after this token, in whole characters.
    void push(std::string_view token, std::string& text);
    void finish(std::string& text);

   private:
    void pass(std::size_t from, std::string& text);
    std::vector<std::unique_ptr<DecodeStage>> stages_;
    std::vector<Chunk> chunks_, next_;  // Of pass(); kept for their memory.
  };

 private:
  Status parse_into(const JsonRef& json, int depth);
  Status check_growth(const JsonRef& json) const;
  std::vector<DecodeStep> steps_;
};

}  // namespace volta::tokenizers
