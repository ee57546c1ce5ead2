#include "text/tokenizers/regex_matcher.h"

#include <bit>

#include "text/tokenizers/unicode.h"

namespace volta::tokenizers {
namespace {

using Op = RegexInstruction::Op;
using unicode::character_at;
using unicode::character_before;

}  // namespace

RegexMatcher::RegexMatcher(const RegexProgram& program, std::string_view text, WorkBudget& budget)
    : program_(program),
      code_(program.code),
      text_(text),
      budget_(budget),
      steps_(program.slots / 8),
      slots_(program.slots) {}

bool RegexMatcher::charge() {
  const std::uint64_t steps = std::exchange(steps_, 0);
  return budget_.step(steps) && !too_deep_;
}

std::size_t RegexMatcher::find_candidate(std::size_t begin) {
  if (program_.matches_nothing) return begin;
  std::size_t at = begin;
  while (at < text_.size() && !program_.first_bytes[static_cast<unsigned char>(text_[at])]) ++at;
  steps_ += (at - begin) / 8;
  return at;
}

// If a pattern begins with an unlimited repeat of a class (\s+$), and the rest of it matches after
// none of the characters, then no match begins at any of them. So all of them are skipped.
std::size_t RegexMatcher::next_begin(std::size_t begin) {
  at_ = begin;
  const RegexInstruction& first = code_.front();
  if (first.op == Op::kRepeat && first.max == kUnlimited) {
    take_characters(program_.classes[first.first], kUnlimited);
  }
  return at_ > begin ? at_ : begin + character_at(text_, begin).length;
}

RegexMatcher::Outcome RegexMatcher::match_at(std::size_t begin) {
  stack_.clear();
  look_ = kNoLook;
  pc_ = 0;
  at_ = begin;
  while (true) {
    if (++steps_ >= kStepsBetweenCharges && !charge()) return Outcome::kGaveUp;
    const RegexInstruction& in = code_[pc_];
    if (in.op == Op::kMatch) return Outcome::kMatch;
    if (!run(in) && !backtrack()) return Outcome::kNone;
  }
}

// Runs one instruction. Returns false if the text does not match it.
bool RegexMatcher::run(const RegexInstruction& in) {
  const std::uint32_t pc = pc_++;
  switch (in.op) {
    case Op::kLiteral:
      return take_literal(in);
    case Op::kClass:
      return take_character(program_.classes[in.first]);
    case Op::kRepeat:
      return repeat(in);
    case Op::kBranch: {
      const std::size_t next =
          at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : std::size_t{256};
      const std::uint64_t targets = program_.tables[in.max][next];
      if (targets == 0) return false;
      branch(pc, targets);
      return true;
    }
    case Op::kJump:
      pc_ = in.first;
      return true;
    case Op::kMark:
      push({.pc = pc, .at = slots_[in.first], .extra = 0});
      slots_[in.first] = at_;
      return true;
    case Op::kProgress:
      if (slots_[in.first] == at_) pc_ = in.count;
      return true;
    case Op::kLook:
      push({.pc = pc, .at = at_, .extra = look_});
      look_ = stack_.size() - 1;
      return true;
    case Op::kLookEnd:
      return end_look(in);
    case Op::kBack:
      return go_back(in.first);
    case Op::kAssertion:
      return holds(in.assertion);
    case Op::kMatch:
      break;
  }
  return true;
}

bool RegexMatcher::take_literal(const RegexInstruction& in) {
  const std::string_view literal = std::string_view(program_.literals).substr(in.first, in.count);
  steps_ += in.count / 8;
  if (!text_.substr(at_).starts_with(literal)) return false;
  at_ += in.count;
  return true;
}

bool RegexMatcher::take_character(const CharClass& char_class) {
  return take_characters(char_class, 1) == 1;
}

// Takes characters while they are in the class, and returns their number.
std::uint32_t RegexMatcher::take_characters(const CharClass& char_class, std::uint32_t most) {
  std::size_t at = at_;
  std::uint32_t count = 0;
  for (; count < most && at < text_.size(); ++count) {
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 128) {
      if (!char_class.contains_ascii(byte)) break;
      ++at;
    } else {
      const unicode::Character c = character_at(text_, at);
      if (!char_class.contains(c.value)) break;
      at += c.length;
    }
  }
  steps_ += (at - at_) / 4;
  at_ = at;
  return count;
}

bool RegexMatcher::repeat(const RegexInstruction& in) {
  const std::uint32_t pc = pc_ - 1;
  const bool is_lazy = in.greed == Greed::kLazy;
  std::size_t least = at_;
  const std::uint32_t count =
      take_characters(program_.classes[in.first], is_lazy ? in.min : in.max);
  if (count < in.min) return false;
  if (is_lazy && in.max > in.min) push({.pc = pc, .at = at_, .extra = in.max - in.min});
  if (in.greed != Greed::kGreedy || count == in.min) return true;
  steps_ += in.min / 4;
  for (std::uint32_t i = 0; i < in.min; ++i) least += character_at(text_, least).length;
  push({.pc = pc, .at = at_, .extra = least});
  return true;
}

// Continues with the first target, and stores the others.
void RegexMatcher::branch(std::uint32_t pc, std::uint64_t targets) {
  const auto first = static_cast<std::uint32_t>(std::countr_zero(targets));
  targets &= targets - 1;
  if (targets != 0) push({.pc = pc, .at = at_, .extra = targets});
  pc_ = program_.targets[code_[pc].first + first];
}

// A look or atomic group is complete. Removing its frames prevents backtracking into it.
bool RegexMatcher::end_look(const RegexInstruction& in) {
  const Frame frame = stack_[look_];
  stack_.resize(look_);
  look_ = static_cast<std::size_t>(frame.extra);
  if (in.look != Look::kAtomic) at_ = frame.at;
  return in.look != Look::kNotAhead && in.look != Look::kNotBehind;
}

bool RegexMatcher::go_back(std::uint32_t characters) {
  steps_ += characters / 4;
  for (; characters > 0; --characters) {
    if (at_ == 0) return false;
    at_ = character_before(text_, at_);
  }
  return true;
}

bool RegexMatcher::holds(Assertion assertion) const {
  switch (assertion) {
    case Assertion::kTextBegin:
      return at_ == 0;
    case Assertion::kTextEnd:
      return at_ == text_.size();
    case Assertion::kLineBegin:
      // There is no line after the last line end of a text.
      return at_ == 0 || (text_[at_ - 1] == '\n' && at_ < text_.size());
    case Assertion::kLineEnd:
      return at_ == text_.size() || text_[at_] == '\n';
    case Assertion::kWordBoundary:
    case Assertion::kNoWordBoundary:
      break;
  }
  const bool before = at_ > 0 && is_word_at(character_before(text_, at_));
  const bool after = at_ < text_.size() && is_word_at(at_);
  return (before != after) == (assertion == Assertion::kWordBoundary);
}

bool RegexMatcher::is_word_at(std::size_t at) const {
  static const CharClass word(unicode::word_set());
  return word.contains(character_at(text_, at).value);
}

void RegexMatcher::push(const Frame& frame) {
  if (stack_.size() >= kMaxFrames) {
    too_deep_ = true;
    steps_ += kStepsBetweenCharges;  // So the next step calls charge(), which fails.
  }
  stack_.push_back(frame);
}

// Resumes at the last stored choice; false when there is none.
bool RegexMatcher::backtrack() {
  while (!stack_.empty()) {
    ++steps_;
    const Frame frame = stack_.back();
    stack_.pop_back();
    if (resume(frame, code_[frame.pc])) return true;
  }
  return false;
}

bool RegexMatcher::resume(const Frame& frame, const RegexInstruction& in) {
  switch (in.op) {
    case Op::kBranch:
      at_ = frame.at;
      branch(frame.pc, frame.extra);
      return true;
    case Op::kRepeat:
      pc_ = frame.pc + 1;
      at_ = frame.at;
      if (in.greed == Greed::kLazy) {
        if (!take_character(program_.classes[in.first])) return false;
        const std::uint64_t left = frame.extra - 1;
        if (left > 0) push({.pc = frame.pc, .at = at_, .extra = left});
        return true;
      }
      at_ = character_before(text_, at_);
      if (at_ > frame.extra) push({.pc = frame.pc, .at = at_, .extra = frame.extra});
      return true;
    case Op::kMark:
      slots_[in.first] = frame.at;
      return false;
    default:  // The content of a look has failed, as negative looks require.
      look_ = static_cast<std::size_t>(frame.extra);
      at_ = frame.at;
      pc_ = in.first;
      return in.look == Look::kNotAhead || in.look == Look::kNotBehind;
  }
}

}  // namespace volta::tokenizers
