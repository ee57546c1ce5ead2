// Matches compiled regular expressions by backtracking. Every step is counted and charged to the
// text's budget, which limits the time of all patterns. All places are at the start of a character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/work_budget.h"
#include "text/tokenizers/regex_program.h"

namespace volta::tokenizers {

class RegexMatcher {
 public:
  /// kGaveUp: the budget is spent, or backtracking needs too much memory.
  enum class Outcome : std::uint8_t { kMatch, kNone, kGaveUp };

  /// The arguments must outlive the matcher. `text` is valid UTF-8.
  RegexMatcher(const RegexProgram& program, std::string_view text, WorkBudget& budget);

  /// Tries to match at `begin`, the start of a character. After a match, end() is its end.
  Outcome match_at(std::size_t begin);
  std::size_t end() const { return at_; }

  /// The first place from `begin` on where a match may begin, or the end of the text.
  std::size_t find_candidate(std::size_t begin);

  /// The next place to try after match_at(`begin`) has failed.
  std::size_t next_begin(std::size_t begin);

  /// Charges the steps since the last call; false when the budget is spent.
  bool charge();

 private:
  // A state to resume when matching fails. `extra` depends on the instruction: for a branch it is
  // the remaining targets; for a repeat the least end (greedy) or the number of characters left
  // (lazy); for a look the frame of the outer look.
  struct Frame {
    std::uint32_t pc;     // A branch, a repeat, a mark or a look.
    std::size_t at;       // The place in the text, or a slot's former value.
    std::uint64_t extra;  // See above.
  };
  static constexpr std::size_t kStepsBetweenCharges = 1024;
  static constexpr std::size_t kMaxFrames = std::size_t{1} << 21;  // 48 MiB.
  static constexpr std::size_t kNoLook = static_cast<std::size_t>(-1);

  bool run(const RegexInstruction& in);
  bool take_literal(const RegexInstruction& in);
  bool take_character(const CharClass& char_class);
  std::uint32_t take_characters(const CharClass& char_class, std::uint32_t most);
  bool repeat(const RegexInstruction& in);
  void branch(std::uint32_t pc, std::uint64_t targets);
  bool end_look(const RegexInstruction& in);
  bool go_back(std::uint32_t characters);
  bool holds(Assertion assertion) const;
  bool is_word_at(std::size_t at) const;

  void push(const Frame& frame);
  bool backtrack();
  bool resume(const Frame& frame, const RegexInstruction& in);

  const RegexProgram& program_;
  std::span<const RegexInstruction> code_;
  std::string_view text_;
  WorkBudget& budget_;
  std::uint64_t steps_ = 0;
  std::uint32_t pc_ = 0;
  std::size_t at_ = 0;
  std::size_t look_ = kNoLook;  // The frame of the innermost look in progress.
  bool too_deep_ = false;
  std::vector<Frame> stack_;
  std::vector<std::size_t> slots_;
};

}  // namespace volta::tokenizers
