// The text that new tokens add to a prompt's, as it grows: whole characters, ended by stop strings.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/stop_strings.h"
#include "io/tokenizer.h"

namespace volta {

/// Reads the tokens of one completion. Special tokens give no text. Never gives a part of a
/// character, of a stop string, or of what may still become one.
class CompletionStream {
 public:
  /// `prompt` is what the new tokens follow; what it says is not looked at for stop strings.
  CompletionStream(std::shared_ptr<const Tokenizer> tokenizer, std::span<const std::int32_t> prompt,
                   std::span<const std::string> stops);

  /// The text of the prompt, but for a character that the new tokens complete.
  const std::string& prompt_text() const { return prompt_text_; }
  /// What the next token adds.
  std::string push(std::int32_t token) { return stops_.push(decoder_.push(token)); }
  /// What is left at the end.
  std::string finish();
  /// Whether a stop string was found: the text has ended.
  bool stopped() const { return stops_.stopped(); }

 private:
  StreamDecoder decoder_;
  StopStrings stops_;
  std::string prompt_text_;
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
