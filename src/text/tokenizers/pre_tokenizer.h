// Pre-tokenizers: they cut text into the words that a model sees one at a time, and some rewrite it
// on the way. The kinds are those of tokenizer.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_budget.h"
#include "text/tokenizers/regex.h"
#include "text/tokenizers/split_scanner.h"

namespace volta::tokenizers {

/// Words of a text: places in it, from left to right.
struct Words {
  std::string_view source;
  std::string rewritten;  ///< Stands for the source where a step has rewritten it.
  bool is_rewritten = false;
  std::vector<Span> list;
  bool first_at_start = false;  ///< The first word begins where the whole input does.

  std::string_view text() const { return is_rewritten ? std::string_view(rewritten) : source; }
  std::string_view at(const Span& span) const {
    return text().substr(span.begin, span.end - span.begin);
  }
};

/// What becomes of the parts that a pattern matches, the delimiters.
enum class SplitBehavior : std::uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};
Result<SplitBehavior> parse_split_behavior(const JsonRef& json, std::string_view key);

// The steps.

/// Cuts at a pattern: a known one, a regular expression, or a string.
struct SplitStep {
  std::variant<KnownPattern, Regex, std::string> pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  ///< The pattern matches words, not delimiters.
};
/// Cuts around characters of one class.
struct CharacterStep {
  enum class Class : std::uint8_t { kSpace, kPunctuation, kDigit, kDelimiter };
  Class what = Class::kSpace;
  SplitBehavior behavior = SplitBehavior::kRemoved;
  char32_t delimiter = 0;
};
/// \w+|[^\w\s]+ : runs of word characters and runs of others, without spaces.
struct WhitespaceStep {};
struct PrefixSpaceStep {};
/// Writes bytes as their stand-ins (byte_level.h).
struct ByteCharactersStep {};
/// Spaces become a visible character, which is put before the text, too.
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

class PreTokenizer {
 public:
  /// The "pre_tokenizer" of a tokenizer.json. kInvalidFile, kUnsupported for an unknown kind.
  static Result<PreTokenizer> parse(const JsonRef& json);

  /// Whether the last step writes bytes as their stand-ins; and taking it away, for a model that
  /// takes the bytes themselves.
  bool ends_in_byte_characters() const {
    return !steps_.empty() && std::holds_alternative<ByteCharactersStep>(steps_.back());
  }
  void drop_last_step() { steps_.pop_back(); }

  /// Cuts valid UTF-8. `at_start`: nothing of the input came before it.
  /// kInvalidFile when the budget is spent, kInterrupted.
  Result<Words> split(std::string_view text, bool at_start, WorkBudget& budget) const;

 private:
  Status parse_into(const JsonRef& json, int depth);
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace volta::tokenizers
