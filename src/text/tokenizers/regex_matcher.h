// Matches compiled regular expressions by backtracking. Every step is counted and charged to the
// budget of the text, so that no pattern takes long; all places are those of whole characters.
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
  /// kGaveUp: the budget is spent, or the pattern has left too many choices open.
  enum class Outcome : std::uint8_t { kMatch, kNone, kGaveUp };

  /// All of them must outlive the matcher. `text` is valid UTF-8.
  RegexMatcher(const RegexProgram& program, std::string_view text, WorkBudget& budget);

  /// Looks for a match that begins at `begin`, where a character does. The end of a match is then
  /// end().
  Outcome match_at(std::size_t begin);
  std::size_t end() const { return at_; }

  /// The first place from `begin` on where a match could begin; the end of the text at the latest.
  std::size_t find_candidate(std::size_t begin);

  /// Where to look on when no match begins at `begin`.
  std::size_t next_begin(std::size_t begin);

  /// Charges the steps since the last time; false when the budget is spent.
  bool charge();

 private:
  // What to go back to when matching fails.
  struct Frame {
    std::uint32_t pc;     // Of a branch, a repeat, a mark or a look.
    std::size_t at;       // The place, or a slot's former value.
    std::uint64_t extra;  // Targets left; the least end or the characters left; the outer look.
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
  std::size_t look_ = kNoLook;  // The frame of the innermost look that is being matched.
  bool too_deep_ = false;
  std::vector<Frame> stack_;
  std::vector<std::size_t> slots_;
};

}  // namespace volta::tokenizers
