// Decoders: the strings of tokens back to text, token by token, so that text can be shown as it is
// generated: what all pushes and finish() give together is the text of all tokens. The kinds are
// those of tokenizer.json.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizers/normalizer.h"

namespace volta::tokenizers {

/// A token on its way through the steps; a fused one comes in several chunks.
struct Chunk {
  std::string text;
  bool begins = true;  ///< The first chunk of a token.
};

/// One step at work. May hold chunks back, of which finish() gives the rest.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void push(Chunk chunk, std::vector<Chunk>& out) = 0;
  virtual void finish(std::vector<Chunk>& out) { static_cast<void>(out); }
};

/// Tokens are bytes in stand-ins (byte_level.h): what is not UTF-8 becomes U+FFFD.
struct ByteLevelDecode {};
/// <0x41> tokens are bytes; a run of them that is not UTF-8 becomes a U+FFFD each.
struct ByteFallbackDecode {};
/// All tokens are one from here on.
struct FuseDecode {};
/// Cuts a character off the ends of each token, so many times at most.
struct StripDecode {
  std::string content;
  std::size_t start = 0;
  std::size_t stop = 0;
};
struct WordPieceDecode {
  std::string prefix = "##";
  bool cleanup = true;  ///< No spaces before punctuation.
};
struct MetaspaceDecode {
  std::string replacement;
  bool drops_first = true;  ///< The first token's are dropped.
};
/// Words end in a suffix that becomes a space, but for the last token's.
struct BpeDecode {
  std::string suffix;
};
/// No decoder at all: tokens joined by spaces.
struct SpacesDecode {};
using DecodeStep =
    std::variant<ByteLevelDecode, ByteFallbackDecode, FuseDecode, StripDecode, WordPieceDecode,
                 MetaspaceDecode, BpeDecode, SpacesDecode, ReplaceStep>;

class Decoder {
 public:
  /// Joins tokens by spaces: what a tokenizer.json without decoder asks for.
  Decoder() : steps_{SpacesDecode{}} {}
  /// The "decoder" of a tokenizer.json. kInvalidFile, kUnsupported for an unknown kind.
  static Result<Decoder> parse(const JsonRef& json);

  /// Whether tokens are written in byte stand-ins.
  bool is_byte_level() const;

  /// A decoding. Views the decoder.
  class Run {
   public:
    explicit Run(const Decoder& decoder);
    /// The text that is complete after this token: whole characters.
    std::string push(std::string_view token);
    std::string finish();

   private:
    std::string pass(std::vector<Chunk> chunks, std::size_t from);
    std::vector<std::unique_ptr<DecodeStage>> stages_;
  };

 private:
  Status parse_into(const JsonRef& json, int depth);
  Status check_growth(const JsonRef& json) const;
  std::vector<DecodeStep> steps_;
};

}  // namespace volta::tokenizers
