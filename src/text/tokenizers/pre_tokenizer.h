// Pre-tokenizers split text into the words that a model gets one at a time. Some also change the
// text. The kinds are those of tokenizer.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_budget.h"
#include "text/tokenizers/regex.h"
#include "text/tokenizers/split_scanner.h"

namespace volta::tokenizers {

/// The words of a text, as ranges from left to right.
struct Words {
  std::string_view source;
  std::string rewritten;  ///< The text after a step has changed it.
  bool is_rewritten = false;
  std::vector<Span> list;
  bool first_at_start = false;  ///< The first word begins at the start of the input.

  std::string_view text() const { return is_rewritten ? std::string_view(rewritten) : source; }
  std::string_view at(const Span& span) const {
    return text().substr(span.begin, span.end - span.begin);
  }
};

/// The treatment of delimiters, which are the parts that a pattern matches.
enum class SplitBehavior : std::uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};
Result<SplitBehavior> parse_split_behavior(const JsonRef& json, std::string_view key);

// The steps.

/// Splits at a pattern: a known one, a regular expression, or a string.
struct SplitStep {
  std::variant<KnownPattern, Regex, std::string> pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  ///< The pattern matches words, not delimiters.
};
/// Splits at characters of one class.
struct CharacterStep {
  enum class Class : std::uint8_t { kSpace, kPunctuation, kDigit, kDelimiter };
  Class what = Class::kSpace;
  SplitBehavior behavior = SplitBehavior::kRemoved;
  char32_t delimiter = 0;
};
/// \w+|[^\w\s]+ : runs of word characters, and runs of other characters, without spaces.
struct WhitespaceStep {};
struct PrefixSpaceStep {};
/// Writes bytes as their characters (byte_level.h).
struct ByteCharactersStep {};
/// Replaces spaces by a visible character, and also puts it before the text.
struct MetaspaceStep {
  enum class Prepend : std::uint8_t { kFirst, kNever, kAlways };
  std::string replacement = "\u2581";
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};
struct FixedLengthStep {
  std::int64_t length = 5;  ///< In characters.
};
using PreTokenizerStep = std::variant<SplitStep, CharacterStep, WhitespaceStep, PrefixSpaceStep,
                                      ByteCharactersStep, MetaspaceStep, FixedLengthStep>;

/// A step that isolates what a pattern matches. `what` names the pattern in messages. The errors of
/// Regex::compile().
Result<SplitStep> split_at(std::string_view pattern, std::string_view what);

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}
  /// The "pre_tokenizer" of a tokenizer.json. kInvalidFile, kUnsupported for an unknown kind.
  static Result<PreTokenizer> parse(const JsonRef& json);

  /// Whether the last step writes bytes as their characters. drop_last_step() removes it for a
  /// model that accepts the bytes themselves.
  bool ends_in_byte_characters() const {
    return !steps_.empty() && std::holds_alternative<ByteCharactersStep>(steps_.back());
  }
  void drop_last_step() { steps_.pop_back(); }

  /// Splits valid UTF-8. `at_start`: the text is at the start of the input.
  /// kInvalidFile when the budget is spent, kInterrupted.
  Result<Words> split(std::string_view text, bool at_start, WorkBudget& budget) const;

 private:
  Status parse_into(const JsonRef& json, int depth);
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace volta::tokenizers
