#include "text/tokenizers/regex_program.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "base/text.h"

namespace volta::tokenizers {
namespace {

using Kind = RegexNode::Kind;
using Op = RegexInstruction::Op;

// A repeated group is compiled to one copy per repetition. So a short pattern could lead to a large
// program or a long compilation. kMaxCopiedNodes limits the nodes in all copies.
constexpr std::size_t kMaxInstructions = 50'000;
constexpr std::size_t kMaxProgramClasses = 2'000;
constexpr std::size_t kMaxTables = 1'000;
constexpr std::uint32_t kMaxCopiedNodes = 1'000'000;
constexpr std::size_t kMaxLiteralBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxTargets = 64;  // Per branch: bits of a table's entry.
constexpr std::size_t kMaxVisits = 64;   // Instructions visited in a search for first bytes.

bool may_take_nothing(const RegexNode& node) {
  switch (node.kind) {
    case Kind::kCharacter:
    case Kind::kClass:
      return false;
    case Kind::kSequence:
      return std::ranges::all_of(node.parts, may_take_nothing);
    case Kind::kAlternatives:
      return std::ranges::any_of(node.parts, may_take_nothing);
    case Kind::kRepeat:
      return node.min == 0 || may_take_nothing(node.parts.front());
    case Kind::kLook:
      return node.look != Look::kAtomic || may_take_nothing(node.parts.front());
    case Kind::kAssertion:
      break;
  }
  return true;
}

// Whether a node can match the empty string at every place, whatever follows.
bool takes_nothing_anywhere(const RegexNode& node) {
  switch (node.kind) {
    case Kind::kSequence:
      return std::ranges::all_of(node.parts, takes_nothing_anywhere);
    case Kind::kAlternatives:
      return std::ranges::any_of(node.parts, takes_nothing_anywhere);
    case Kind::kRepeat:  // A possessive one takes as much as possible.
      return node.greed != Greed::kPossessive &&
             (node.min == 0 || takes_nothing_anywhere(node.parts.front()));
    case Kind::kCharacter:
    case Kind::kClass:
    case Kind::kLook:
    case Kind::kAssertion:
      break;
  }
  return false;
}

// An empty round of a group ends the repetition. In Oniguruma this holds even before the minimum
// number of rounds is reached: "((?:b|^)){2}" matches the empty string at the start of "ba", not
// the b. Groups so small that Oniguruma compiles one copy per round are an exception. If a round
// can be empty at every place, both behaviours have the same result. Otherwise the meaning depends
// on Oniguruma's code sizes.
bool depends_on_empty_rounds(const RegexNode& repeat) {
  const RegexNode& part = repeat.parts.front();
  return repeat.min >= 2 && may_take_nothing(part) && !takes_nothing_anywhere(part);
}

// The number of characters that a node takes if it is constant; -1 otherwise.
std::int64_t fixed_length(const RegexNode& node) {
  constexpr std::int64_t kMost = kMaxPatternBytes;
  std::int64_t length = 0;
  switch (node.kind) {
    case Kind::kCharacter:
    case Kind::kClass:
      return 1;
    case Kind::kSequence:
      for (const RegexNode& part : node.parts) {
        const std::int64_t next = fixed_length(part);
        if (next < 0 || length > kMost) return -1;
        length += next;
      }
      return length;
    case Kind::kAlternatives:
      length = fixed_length(node.parts.front());
      for (const RegexNode& part : std::span(node.parts).subspan(1)) {
        if (fixed_length(part) != length) return -1;
      }
      return length;
    case Kind::kRepeat:
      length = fixed_length(node.parts.front());
      if (length < 0 || length > kMost || node.min != node.max) return -1;
      return length * node.min;
    case Kind::kLook:
      return node.look == Look::kAtomic ? fixed_length(node.parts.front()) : 0;
    case Kind::kAssertion:
      break;
  }
  return 0;
}

class Compiler {
 public:
  explicit Compiler(RegexTree tree) : root_(std::move(tree.root)) {
    program_.classes = std::move(tree.classes);
  }

  Result<RegexProgram> compile() {
    VOLTA_TRY(emit_node(root_));
    emit({.op = Op::kMatch});
    for (std::uint32_t at = 0; at < program_.code.size(); ++at) {
      RegexInstruction& instruction = program_.code[at];
      if (instruction.op == Op::kRepeat) make_possessive(at, instruction);
      if (instruction.op == Op::kBranch) VOLTA_TRY(make_table(instruction));
    }
    const Front front = find_front(0);
    for (std::size_t byte = 0; byte < 256; ++byte) program_.first_bytes[byte] = front.bytes[byte];
    program_.matches_nothing = front.end;
    return std::move(program_);
  }

 private:
  // The bytes that may come next at a place of the program, and whether the text may end there.
  struct Front {
    ByteSet bytes;
    bool end = false;
  };

  std::uint32_t here() const { return static_cast<std::uint32_t>(program_.code.size()); }
  std::uint32_t emit(const RegexInstruction& instruction) {
    program_.code.push_back(instruction);
    return here() - 1;
  }

  Status check_size() const;
  Status emit_node(const RegexNode& node);
  Status emit_sequence(const std::vector<RegexNode>& parts);
  Status emit_alternatives(std::span<const RegexNode> parts, bool behind);
  Status emit_repeat(const RegexNode& node);
  Status emit_loop(const RegexNode& part, bool may_skip, Greed greed);
  std::uint32_t emit_choice(std::uint32_t body, Greed greed);
  void set_exits(std::span<const std::uint32_t> choices);
  Status emit_look(const RegexNode& node);
  Status emit_behind(const RegexNode& node);
  std::uint32_t class_of(const RegexNode& node);

  Front find_front(std::uint32_t start) const;
  void make_possessive(std::uint32_t at, RegexInstruction& repeat) const;
  Status make_table(RegexInstruction& branch);

  RegexNode root_;
  RegexProgram program_;
  std::uint32_t visited_ = 0;                 // Nodes, counted once per copy.
  std::map<char32_t, std::uint32_t> single_;  // Classes of one character.
};

Status Compiler::check_size() const {
  if (program_.code.size() <= kMaxInstructions && program_.classes.size() <= kMaxProgramClasses &&
      program_.literals.size() <= kMaxLiteralBytes && program_.tables.size() <= kMaxTables) {
    return {};
  }
  return fail(ErrorCode::kInvalidFile, "too large when its repetitions are expanded");
}

Status Compiler::emit_node(const RegexNode& node) {
  // Parts without instructions, such as empty groups, also take time in every copy.
  if (++visited_ > kMaxCopiedNodes) {
    return fail(ErrorCode::kInvalidFile, "too large when its repetitions are expanded");
  }
  VOLTA_TRY(check_size());
  switch (node.kind) {
    case Kind::kCharacter:
      return emit_sequence({node});
    case Kind::kClass:
      emit({.op = Op::kClass, .first = node.char_class});
      return {};
    case Kind::kSequence:
      return emit_sequence(node.parts);
    case Kind::kAlternatives:
      return emit_alternatives(node.parts, false);
    case Kind::kRepeat:
      return emit_repeat(node);
    case Kind::kLook:
      return emit_look(node);
    case Kind::kAssertion:
      break;
  }
  emit({.op = Op::kAssertion, .assertion = node.assertion});
  return {};
}

// Adjacent characters become one literal.
Status Compiler::emit_sequence(const std::vector<RegexNode>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind != Kind::kCharacter) {
      VOLTA_TRY(emit_node(parts[i]));
      continue;
    }
    const std::size_t begin = program_.literals.size();
    append_utf8(program_.literals, parts[i].character);
    while (i + 1 < parts.size() && parts[i + 1].kind == Kind::kCharacter) {
      append_utf8(program_.literals, parts[++i].character);
    }
    emit({.op = Op::kLiteral,
          .first = static_cast<std::uint32_t>(begin),
          .count = static_cast<std::uint32_t>(program_.literals.size() - begin)});
  }
  return {};
}

// `behind`: each alternative first goes back by its own length.
Status Compiler::emit_alternatives(std::span<const RegexNode> parts, bool behind) {
  const bool too_many = parts.size() > kMaxTargets;
  const std::size_t count = too_many ? kMaxTargets : parts.size();
  const std::size_t first = program_.targets.size();
  program_.targets.resize(first + count);
  emit({.op = Op::kBranch,
        .first = static_cast<std::uint32_t>(first),
        .count = static_cast<std::uint32_t>(count)});
  std::vector<std::uint32_t> jumps;
  for (std::size_t i = 0; i < count; ++i) {
    program_.targets[first + i] = here();
    if (too_many && i + 1 == count) {
      VOLTA_TRY(emit_alternatives(parts.subspan(i), behind));
    } else if (behind) {
      VOLTA_TRY(emit_behind(parts[i]));
    } else {
      VOLTA_TRY(emit_node(parts[i]));
    }
    if (i + 1 < count) jumps.push_back(emit({.op = Op::kJump}));
  }
  for (const std::uint32_t jump : jumps) program_.code[jump].first = here();
  return {};
}

Status Compiler::emit_repeat(const RegexNode& node) {
  const RegexNode& part = node.parts.front();
  if (node.max == 0) return {};
  if (depends_on_empty_rounds(node)) {
    return fail(ErrorCode::kUnsupported,
                "a group that is repeated twice or more often, and that can match nothing at some "
                "places only, is not supported");
  }
  if (part.kind == Kind::kCharacter || part.kind == Kind::kClass) {
    emit({.op = Op::kRepeat,
          .greed = node.greed,
          .first = class_of(part),
          .min = node.min,
          .max = node.max});
    return {};
  }
  const bool possessive = node.greed == Greed::kPossessive;
  const std::uint32_t look = here();
  if (possessive) emit({.op = Op::kLook, .look = Look::kAtomic});
  const bool is_loop = node.max == kUnlimited;
  const std::uint32_t copies = is_loop && node.min > 0 ? node.min - 1 : node.min;
  for (std::uint32_t i = 0; i < copies; ++i) {
    const std::uint32_t before = here();
    VOLTA_TRY(emit_node(part));
    if (here() == before) break;  // The part is empty, so more copies do not matter.
  }
  if (is_loop) {
    VOLTA_TRY(emit_loop(part, node.min == 0, node.greed));
  } else {
    std::vector<std::uint32_t> choices;
    for (std::uint32_t i = node.min; i < node.max; ++i) {
      choices.push_back(emit_choice(here() + 1, node.greed));
      VOLTA_TRY(emit_node(part));
    }
    set_exits(choices);
  }
  if (possessive) {
    emit({.op = Op::kLookEnd, .look = Look::kAtomic});
    program_.code[look].first = here();
  }
  return {};
}

// Repeats a part at least once; with `may_skip` also zero times. An empty round is the last.
Status Compiler::emit_loop(const RegexNode& part, bool may_skip, Greed greed) {
  std::vector<std::uint32_t> choices;
  if (may_skip) choices.push_back(emit_choice(here() + 1, greed));
  const std::uint32_t begin = here();
  const bool needs_mark = may_take_nothing(part);
  const std::uint32_t slot = program_.slots;
  if (needs_mark) {
    ++program_.slots;
    emit({.op = Op::kMark, .first = slot});
  }
  VOLTA_TRY(emit_node(part));
  std::uint32_t progress = here();
  if (needs_mark) emit({.op = Op::kProgress, .first = slot});
  choices.push_back(emit_choice(begin, greed));
  set_exits(choices);
  if (needs_mark) program_.code[progress].count = here();
  return {};
}

// Emits a branch to `body` and to an exit, which set_exits() sets later.
std::uint32_t Compiler::emit_choice(std::uint32_t body, Greed greed) {
  const auto first = static_cast<std::uint32_t>(program_.targets.size());
  program_.targets.insert(program_.targets.end(), 2, body);
  return emit({.op = Op::kBranch, .greed = greed, .first = first, .count = 2});
}

void Compiler::set_exits(std::span<const std::uint32_t> choices) {
  for (const std::uint32_t choice : choices) {
    const RegexInstruction& branch = program_.code[choice];
    program_.targets[branch.first + (branch.greed == Greed::kLazy ? 0 : 1)] = here();
  }
}

Status Compiler::emit_look(const RegexNode& node) {
  const RegexNode& part = node.parts.front();
  const std::uint32_t look = emit({.op = Op::kLook, .look = node.look});
  if (node.look != Look::kBehind && node.look != Look::kNotBehind) {
    VOLTA_TRY(emit_node(part));
  } else if (part.kind == Kind::kAlternatives) {
    VOLTA_TRY(emit_alternatives(part.parts, true));
  } else {
    VOLTA_TRY(emit_behind(part));
  }
  emit({.op = Op::kLookEnd, .look = node.look});
  program_.code[look].first = here();
  return {};
}

Status Compiler::emit_behind(const RegexNode& node) {
  const std::int64_t length = fixed_length(node);
  if (length < 0) {
    return fail(ErrorCode::kUnsupported, "a look-behind without a fixed length is not supported");
  }
  emit({.op = Op::kBack, .first = static_cast<std::uint32_t>(length)});
  return emit_node(node);
}

// The class of a node that is a character or a class.
std::uint32_t Compiler::class_of(const RegexNode& node) {
  if (node.kind == Kind::kClass) return node.char_class;
  const auto place = static_cast<std::uint32_t>(program_.classes.size());
  const auto [known, added] = single_.emplace(node.character, place);
  if (added) {
    program_.classes.emplace_back(unicode::CodePointSet({{node.character, node.character}}));
  }
  return known->second;
}

// Finds the first bytes of all possible continuations. It ignores looks and assertions, so the
// result may have too many bytes, but never too few.
Compiler::Front Compiler::find_front(std::uint32_t start) const {
  Front front;
  std::vector<std::uint32_t> todo{start};
  std::vector<std::uint32_t> seen;
  bool anything = false;
  while (!todo.empty() && !anything) {
    const std::uint32_t at = todo.back();
    todo.pop_back();
    if (std::ranges::find(seen, at) != seen.end()) continue;
    seen.push_back(at);
    const RegexInstruction& in = program_.code[at];
    switch (in.op) {
      case Op::kLiteral:
        front.bytes[static_cast<unsigned char>(program_.literals[in.first])] = true;
        break;
      case Op::kClass:
        front.bytes |= program_.classes[in.first].first_bytes();
        break;
      case Op::kRepeat:
        front.bytes |= program_.classes[in.first].first_bytes();
        if (in.min == 0) todo.push_back(at + 1);
        break;
      case Op::kBranch:
        for (std::uint32_t i = 0; i < in.count; ++i) {
          todo.push_back(program_.targets[in.first + i]);
        }
        break;
      case Op::kJump:
        todo.push_back(in.first);
        break;
      case Op::kProgress:
        todo.push_back(in.count);
        todo.push_back(at + 1);
        break;
      case Op::kLook:
        todo.push_back(in.look == Look::kAtomic ? at + 1 : in.first);
        break;
      case Op::kMark:
      case Op::kAssertion:
        todo.push_back(at + 1);
        break;
      case Op::kLookEnd:  // Its success must not depend on what follows.
      case Op::kBack:
      case Op::kMatch:
        anything = true;
        break;
    }
    anything = anything || seen.size() == kMaxVisits;
  }
  if (anything) {
    front.bytes.set();
    front.end = true;
  }
  return front;
}

// Makes a repeat possessive if backtracking into it cannot help: at the end of the pattern or of a
// look, and before instructions that none of its characters can begin.
void Compiler::make_possessive(std::uint32_t at, RegexInstruction& repeat) const {
  if (repeat.greed != Greed::kGreedy) return;
  std::uint32_t next = at + 1;
  while (program_.code[next].op == Op::kJump) next = program_.code[next].first;
  const ByteSet& own = program_.classes[repeat.first].first_bytes();
  const Op op = program_.code[next].op;
  if (op == Op::kMatch || op == Op::kLookEnd || (find_front(next).bytes & own).none()) {
    repeat.greed = Greed::kPossessive;
  }
}

Status Compiler::make_table(RegexInstruction& branch) {
  BranchTable table{};
  for (std::uint32_t i = 0; i < branch.count; ++i) {
    const Front front = find_front(program_.targets[branch.first + i]);
    const std::uint64_t bit = std::uint64_t{1} << i;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (front.bytes[byte]) table[byte] |= bit;
    }
    if (front.end) table[256] |= bit;
  }
  const auto known = std::ranges::find(program_.tables, table);
  branch.max = static_cast<std::uint32_t>(known - program_.tables.begin());
  if (known == program_.tables.end()) program_.tables.push_back(table);
  return check_size();
}

}  // namespace

Result<RegexProgram> compile_regex(RegexTree tree) { return Compiler(std::move(tree)).compile(); }

}  // namespace volta::tokenizers
