// Added tokens: strings that are found in the text before all other steps. The special tokens (<s>,
// <|endoftext|>) are among them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_budget.h"
#include "text/quoted_text.h"
#include "text/tokenizers/normalizer.h"
#include "text/tokenizers/trie.h"
#include "text/tokenizers/vocabulary.h"

namespace volta::tokenizers {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< Not found inside a word.
  bool lstrip = false;       ///< Includes the white space before it; rstrip: after it.
  bool rstrip = false;
  bool normalized = true;  ///< Found in normalized text, by its normalized content.
  bool special = false;
};
/// Parses an element of "added_tokens", except for its id. kInvalidFile.
Result<AddedToken> parse_added_token(const JsonRef& json);

/// A part of the text: an added token, or the text between two of them (id -1).
struct Segment {
  std::size_t begin;
  std::size_t end;
  std::int32_t id = -1;
};

class AddedTokens {
 public:
  /// kInvalidFile, naming both, if a token has the id of another one: of an added token, or of one
  /// in the model's vocabulary.
  Status check_id(const AddedToken& token, const Vocabulary& vocabulary) const;
  /// Adds a token. A token in the model's vocabulary gets the model's id. With the id of another
  /// token, it takes that one's place. kInvalidFile for an id out of range, and the errors of
  /// normalizing the token.
  Status add(AddedToken token, const Vocabulary& vocabulary, const Normalizer& normalizer,
             WorkBudget& budget);

  /// Splits valid UTF-8 at the tokens for raw text or at those for normalized text. The segments
  /// cover the text. If several tokens begin at one place, the longest is used. Control tokens are
  /// not found where any of their bytes is `quoted` (in order). kInvalidFile when the budget is
  /// spent, kInterrupted.
  Result<std::vector<Segment>> split(std::string_view text, bool normalized, WorkBudget& budget,
                                     std::span<const TextRange> quoted = {}) const;

  /// The text of an added token for decoding; null for other ids.
  const std::string* text(std::int32_t id) const;
  /// The id of the token with this content, or -1.
  std::int32_t find(std::string_view content) const;
  bool is_special(std::string_view content) const { return special_.contains(content); }
  bool has_special() const { return !special_.empty(); }
  /// Whether a token is a control token: it is special, or it looks like a special token.
  bool is_control(std::int32_t id) const;
  std::vector<std::int32_t> control_ids() const;
  /// Whether split() of normalized text can find a control token.
  bool has_normalized_control() const { return has_normalized_control_; }
  /// One more than the largest id.
  std::int32_t end_id() const { return tokens_.empty() ? 0 : tokens_.rbegin()->first + 1; }

 private:
  struct Known {
    AddedToken token;
    std::string pattern;  // The text to find.
    bool control = false;
  };
  Trie::Match find_at(const Trie& trie, std::string_view text, std::size_t at,
                      std::span<const TextRange> quoted) const;

  std::map<std::int32_t, Known> tokens_;
  std::map<std::string, std::int32_t, std::less<>> ids_;
  std::set<std::string, std::less<>> special_;
  Trie raw_;
  Trie normalized_;
  bool has_normalized_control_ = false;
};

}  // namespace volta::tokenizers
