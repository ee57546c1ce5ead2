// The growing text of the new tokens after a prompt: whole characters, ended by stop strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace [[gnu::visibility("default")]] volta {

/// The definition of a completion's text.
enum class CompletionText : std::uint8_t {
  /// Tokenizer::decode() of the new tokens alone, as transformers returns an answer. If the decoder
  /// removes a space at the beginning of a text, as Llama's does, it also removes it here.
  kAnswer,
  /// The text that continues the prompt's text: the answer, after the space that the decoder would
  /// remove ("Hello" is followed by " world").
  kContinuation,
};

/// Decodes the tokens of one completion. Special tokens have no text. The output never contains a
/// part of a character, of a stop string, or of text that may still become a stop string. The
/// prompt's text is never part of the output and is not searched for stop strings, however the
/// prompt ends.
class CompletionStream {
 public:
  /// The new tokens follow the tokens of `prompt`.
  CompletionStream(std::shared_ptr<const Tokenizer> tokenizer, std::span<const std::int32_t> prompt,
                   std::span<const std::string> stops,
                   CompletionText text = CompletionText::kAnswer);

  /// The text of the prompt. If it ends inside a character, a kAnswer has U+FFFD for the bytes on
  /// either side, as in transformers. With kContinuation, the character belongs to the
  /// continuation, together with the byte tokens directly before it.
  const std::string& prompt_text() const { return prompt_text_; }
  /// The text that the next token adds. It is a part of text(), and valid until the next call.
  std::string_view push(std::int32_t token);
  /// The remaining text at the end.
  std::string_view finish();
  /// All text that push() and finish() have returned so far.
  std::string_view text() const { return std::string_view(text_).substr(0, shown_); }
  /// Whether a stop string was found, so that the text has ended.
  bool stopped() const { return stops_.stopped(); }

 private:
  void remove_prompt(bool ended);
  std::string_view show(std::size_t bytes);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<TextStream> stream_;
  StopStrings stops_;
  // A token's text is appended here by the stream, searched here and shown from here.
  std::string text_;
  std::size_t shown_ = 0;
  std::string prompt_text_;
  // The tokens of prompt and completion until the continuation's first text, which needs them.
  std::optional<std::vector<std::int32_t>> beginning_;
  std::size_t prompt_tokens_ = 0;
};

/// The stops of a user, separated into tokens and strings.
struct Stops {
  std::vector<std::int32_t> tokens;
  std::vector<std::string> strings;
};
/// A text that is exactly one special token stops by its id, because special tokens have no text in
/// which a stop string could be found. All other texts stop as strings. Without a tokenizer, each
/// text must be an id. kInvalidArgument, with `what`, for an empty text and for a text that is
/// neither UTF-8 nor an id.
Result<Stops> parse_stops(std::span<const std::string> texts, const Tokenizer* tokenizer,
                          std::string_view what);

}  // namespace volta
