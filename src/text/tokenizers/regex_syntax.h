// Parses the regular expressions of tokenizers to trees. It supports the part of Oniguruma's
// (Ruby's) language whose meaning is unambiguous, and refuses all other syntax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizers/char_class.h"

namespace volta::tokenizers {

/// Longer patterns are refused; those of real tokenizers have a few hundred bytes.
inline constexpr std::size_t kMaxPatternBytes = std::size_t{64} << 10;
inline constexpr std::uint32_t kUnlimited = 0xFFFFFFFF;

enum class Greed : std::uint8_t { kGreedy, kLazy, kPossessive };
/// Groups without backtracking into them. The first four consume no text.
enum class Look : std::uint8_t { kAhead, kNotAhead, kBehind, kNotBehind, kAtomic };
enum class Assertion : std::uint8_t {
  kTextBegin,
  kTextEnd,
  kLineBegin,
  kLineEnd,
  kWordBoundary,
  kNoWordBoundary,
};

struct RegexNode {
  enum class Kind : std::uint8_t {
    kCharacter,
    kClass,
    kSequence,      ///< Its parts in order; empty without parts.
    kAlternatives,  ///< The first of its parts with which the rest matches.
    kRepeat,        ///< Its only part, `min` to `max` times.
    kLook,          ///< Its only part, matched separately.
    kAssertion,
  };
  Kind kind = Kind::kSequence;
  Greed greed = Greed::kGreedy;
  Look look = Look::kAhead;
  Assertion assertion = Assertion::kTextBegin;
  char32_t character = 0;
  std::uint32_t char_class = 0;  ///< An index in RegexTree::classes.
  std::uint32_t min = 0;
  std::uint32_t max = kUnlimited;
  std::vector<RegexNode> parts{};
};

struct RegexTree {
  RegexNode root;
  std::vector<CharClass> classes;
};

/// kInvalidFile for an invalid pattern, kUnsupported for unsupported syntax. Messages contain the
/// problem and its place, but not the pattern.
Result<RegexTree> parse_regex(std::string_view pattern);

}  // namespace volta::tokenizers
