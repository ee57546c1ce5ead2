// The text of the new tokens behind a prompt, as it grows: whole characters, ended by stop strings.
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

/// What counts as the text of a completion.
enum class CompletionText : std::uint8_t {
  /// Tokenizer::decode() of the new tokens alone, as transformers gives an answer. A decoder that
  /// drops a space at the beginning of a text (Llama's) drops it here.
  kAnswer,
  /// What reads right directly behind the prompt's text: the answer, and before it the space that
  /// was dropped there ("Hello" is followed by " world").
  kContinuation,
};

/// Reads the tokens of one completion. Special tokens give no text. Never gives a part of a
/// character, of a stop string, or of what may still become one. The prompt's text is never part of
/// what is given, nor looked at for stop strings, however the prompt ends.
class CompletionStream {
 public:
  /// `prompt` is what the new tokens follow.
  CompletionStream(std::shared_ptr<const Tokenizer> tokenizer, std::span<const std::int32_t> prompt,
                   std::span<const std::string> stops,
                   CompletionText text = CompletionText::kAnswer);

  /// The text of the prompt. Where it ends within a character, a kAnswer has U+FFFD for the bytes
  /// on either side, as transformers has it; with kContinuation the character belongs to the
  /// continuation, together with the byte tokens directly before it.
  const std::string& prompt_text() const { return prompt_text_; }
  /// What the next token adds.
  std::string push(std::int32_t token);
  /// What is left at the end.
  std::string finish();
  /// Whether a stop string was found: the text has ended.
  bool stopped() const { return stops_.stopped(); }

 private:
  std::string behind_prompt(std::string piece, bool ended);

  std::shared_ptr<const Tokenizer> tokenizer_;
  StreamDecoder decoder_;
  StopStrings stops_;
  std::string prompt_text_;
  // The tokens of prompt and completion until the first text of a continuation, which they tell.
  std::optional<std::vector<std::int32_t>> beginning_;
  std::size_t prompt_tokens_ = 0;
};

/// Stops as a user gives them, told apart.
struct Stops {
  std::vector<std::int32_t> tokens;
  std::vector<std::string> strings;
};
/// A text that is exactly one special token (it has no text that a stop string could be found in)
/// stops by its id; all others by their text. Without tokenizer each must be an id.
/// kInvalidArgument, naming `what`, for empty ones and what is neither UTF-8 nor an id.
Result<Stops> parse_stops(std::span<const std::string> texts, const Tokenizer* tokenizer,
                          std::string_view what);

}  // namespace volta
