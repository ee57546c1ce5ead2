// A regular expression as a list of instructions for the matcher.
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
    kLiteral,   ///< The text continues with literals[first, first + count).
    kClass,     ///< One character of classes[first].
    kRepeat,    ///< `min` to `max` characters of classes[first].
    kBranch,    ///< Tries targets[first, first + count), in this order.
    kJump,      ///< Continues at `first`.
    kMark,      ///< Stores the place in slot `first`.
    kProgress,  ///< Jumps to `count` if nothing was taken since the mark in slot `first`.
    kLook,      ///< Begins a separate match, after which `first` is next.
    kLookEnd,   ///< Ends the separate match.
    kBack,      ///< Goes back by `first` characters.
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
  std::vector<BranchTable> tables;  ///< A branch's `max` is the index of its table.
  std::uint32_t slots = 0;
  /// The bytes with which a match may begin; all bytes if a match may be empty.
  std::array<bool, 256> first_bytes{};
  bool matches_nothing = false;  ///< A match may be empty.
};

/// kInvalidFile when the program would be too large; kUnsupported for a lookbehind with parts of
/// variable length.
Result<RegexProgram> compile_regex(RegexTree tree);

}  // namespace volta::tokenizers
