// The regular expressions of tokenizers, as a tree: the part of Oniguruma's (Ruby's) language that
// means one thing, read once. What is not known here is refused, never passed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizers/char_class.h"

namespace volta::tokenizers {

/// Longer patterns are refused; those of real tokenizers have some hundred bytes.
inline constexpr std::size_t kMaxPatternBytes = std::size_t{64} << 10;
inline constexpr std::uint32_t kUnlimited = 0xFFFFFFFF;

enum class Greed : std::uint8_t { kGreedy, kLazy, kPossessive };
/// Groups that are matched by themselves, without going back into them. The first four take
/// nothing of the text.
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
    kSequence,      ///< Of its parts; nothing where there are none.
    kAlternatives,  ///< The first of its parts that lets the rest match.
    kRepeat,        ///< Its one part, `min` to `max` times.
    kLook,          ///< Its one part, on its own.
    kAssertion,
  };
  Kind kind = Kind::kSequence;
  Greed greed = Greed::kGreedy;
  Look look = Look::kAhead;
  Assertion assertion = Assertion::kTextBegin;
  char32_t character = 0;
  std::uint32_t char_class = 0;  ///< A place in RegexTree::classes.
  std::uint32_t min = 0;
  std::uint32_t max = kUnlimited;
  std::vector<RegexNode> parts{};
};

struct RegexTree {
  RegexNode root;
  std::vector<CharClass> classes;
};

/// kInvalidFile when `pattern` is no pattern, kUnsupported when it holds something that is not
/// known here. Messages say what and where, but do not name the pattern.
Result<RegexTree> parse_regex(std::string_view pattern);

}  // namespace volta::tokenizers
