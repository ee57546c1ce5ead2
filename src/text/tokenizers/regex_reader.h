// Reads a pattern from left to right: single characters, escapes (after a backslash), and classes
// in [...].
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/tokenizers/code_point_set.h"
#include "text/tokenizers/regex_syntax.h"

namespace volta::tokenizers {

/// The limit for nested groups and for nested classes.
inline constexpr int kMaxRegexDepth = 64;

/// The meaning of an escape, or a character or class in [...].
struct RegexItem {
  enum class Kind : std::uint8_t { kCharacter, kSet, kAssertion };
  Kind kind = Kind::kCharacter;
  char32_t character = 0;
  unicode::CodePointSet set{};
  Assertion assertion = Assertion::kTextBegin;
};

class RegexReader {
 protected:
  explicit RegexReader(std::string_view pattern) : pattern_(pattern) {}

  bool at_end() const { return at_ == pattern_.size(); }
  bool sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool sees_digit() const { return !at_end() && pattern_[at_] >= '0' && pattern_[at_] <= '9'; }
  bool take(std::string_view text) {
    if (!sees(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_character();

  /// Reads an escape, from its backslash on.
  Result<RegexItem> escape(bool in_class);
  /// Reads a class, from its [ on. With `any_case`, adds all cases of its characters.
  Result<unicode::CodePointSet> bracket(bool any_case, int depth);

  std::unexpected<Error> invalid(std::string_view why) const;
  /// The error for the unsupported part from `begin` to `end` of the pattern, whole characters.
  std::unexpected<Error> unsupported(std::size_t begin, std::size_t end) const;

  std::string_view pattern_;
  std::size_t at_ = 0;

 private:
  Result<char32_t> hex_character(std::size_t begin);
  Result<unicode::CodePointSet> property(std::size_t begin, bool complement);
  Result<unicode::CodePointSet> bracket_part(int depth);
  Result<RegexItem> bracket_item(int depth);

  std::map<std::string, unicode::CodePointSet, std::less<>> properties_;
};

}  // namespace volta::tokenizers
