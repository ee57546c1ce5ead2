// Added tokens: strings that are found in the text before anything else is done to it, among them
// the special tokens (<s>, <|endoftext|>).
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
  bool single_word = false;  ///< Not inside a word.
  bool lstrip = false;       ///< Takes the white space before it along; rstrip: behind it.
  bool rstrip = false;
  bool normalized = true;  ///< Looked for in the normalized text, normalized itself.
  bool special = false;
};
/// An element of "added_tokens" without its id. kInvalidFile.
Result<AddedToken> parse_added_token(const JsonRef& json);

/// A part of the text: an added token, or text between (id -1).
struct Segment {
  std::size_t begin;
  std::size_t end;
  std::int32_t id = -1;
};

class AddedTokens {
 public:
  /// A token that the model knows keeps the model's id. kInvalidFile for an id out of range, or
  /// what normalizing a token says.
  Status add(AddedToken token, const Vocabulary& vocabulary, const Normalizer& normalizer,
             WorkBudget& budget);

  /// Cuts valid UTF-8 at the tokens that are looked for in raw text, or in normalized text. The
  /// segments cover the text; the longest of several tokens at one place wins. Tokens that control
  /// a model are not found where any of their bytes are `quoted` (in order). kInvalidFile when the
  /// budget is spent, kInterrupted.
  Result<std::vector<Segment>> split(std::string_view text, bool normalized, WorkBudget& budget,
                                     std::span<const TextRange> quoted = {}) const;

  /// What stands for the id when decoding; null when it is no added token.
  const std::string* text(std::int32_t id) const;
  /// The token's id by its content, or -1.
  std::int32_t find(std::string_view content) const;
  bool is_special(std::string_view content) const { return special_.contains(content); }
  bool has_special() const { return !special_.empty(); }
  /// Whether a token controls a model: special ones do, and those that look like it.
  bool is_control(std::int32_t id) const;
  std::vector<std::int32_t> control_ids() const;
  /// Whether split() of normalized text can find one that does.
  bool has_normalized_control() const { return has_normalized_control_; }
  /// One more than the largest id.
  std::int32_t end_id() const { return tokens_.empty() ? 0 : tokens_.rbegin()->first + 1; }

 private:
  struct Known {
    AddedToken token;
    std::string pattern;  // What is looked for.
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
