// A regular expression as instructions for the matcher.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizers/char_class.h"
#include "text/tokenizers/regex_syntax.h"

namespace volta::tokenizers {

struct RegexInstruction {
  enum class Op : std::uint8_t {
    kLiteral,   ///< literals[first, first + count) comes next.
    kClass,     ///< A character of classes[first].
    kRepeat,    ///< min to max characters of classes[first].
    kBranch,    ///< The targets[first, first + count), in this order.
    kJump,      ///< To `first`.
    kMark,      ///< Keeps the place in slot `first`.
    kProgress,  ///< To `count` where nothing was taken since the mark in slot `first`.
    kLook,      ///< What follows is matched on its own; `first` is behind it.
    kLookEnd,   ///< The end of that.
    kBack,      ///< Back by `first` characters.
    kAssertion,
    kMatch,
  };
  Op op = Op::kMatch;
  Greed greed = Greed::kGreedy;
  Look look = Look::kAhead;
  Assertion assertion = Assertion::kTextBegin;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint32_t min = 0;
  std::uint32_t max = 0;
};

/// For each byte that may come next, and for the end of the text (256): a bit for each target that
/// may match there.
using BranchTable = std::array<std::uint64_t, 257>;

struct RegexProgram {
  std::vector<RegexInstruction> code;
  std::vector<CharClass> classes;
  std::string literals;
  std::vector<std::uint32_t> targets;
  std::vector<BranchTable> tables;  ///< A branch's `max` is the place of its table.
  std::uint32_t slots = 0;
  /// The bytes that a match may begin with. All of them where a match may be empty.
  std::array<bool, 256> first_bytes{};
  bool matches_nothing = false;  ///< A match may be empty.
};

/// kInvalidFile when the program would be too large, kUnsupported for a look behind at parts
/// without a fixed length.
Result<RegexProgram> compile_regex(RegexTree tree);

}  // namespace volta::tokenizers
