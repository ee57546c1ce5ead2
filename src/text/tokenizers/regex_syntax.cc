#include "text/tokenizers/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "text/tokenizers/regex_reader.h"

namespace volta::tokenizers {
namespace {

using unicode::CodePointSet;
using Kind = RegexNode::Kind;

constexpr std::size_t kMaxPatternClasses = 1024;  // Different classes in one pattern.
constexpr std::uint32_t kMaxCount = 100'000;

// The flags (?i), which ignores the case of letters, and (?m), with which . matches every
// character.
struct Flags {
  bool any_case = false;
  bool dot_is_all = false;
};

struct Count {
  std::uint32_t min;
  std::uint32_t max;
  bool interval;  // {n,m}, not one of * + ?
};

class Parser : private RegexReader {
 public:
  explicit Parser(std::string_view pattern) : RegexReader(pattern) {}

  Result<RegexTree> parse() {
    VOLTA_TRY(RegexNode root, alternatives(Flags(), 0));
    if (at_ < pattern_.size()) return invalid("unmatched )");
    tree_.root = std::move(root);
    return std::move(tree_);
  }

 private:
  // Groups.
  Result<RegexNode> alternatives(Flags flags, int depth);
  Result<RegexNode> sequence(Flags flags, int depth);
  Result<RegexNode> atom(Flags flags, int depth);
  Result<RegexNode> group(Flags flags, int depth);
  Result<RegexNode> group_with_flags(std::size_t begin, Flags flags, int depth);

  // Quantifiers.
  Result<std::optional<Count>> count();
  Result<std::optional<Count>> interval();
  std::uint32_t number();
  Result<RegexNode> repeated(RegexNode node, std::size_t begin);

  // Characters and classes.
  Result<RegexNode> escaped(Flags flags);
  Result<RegexNode> character_node(char32_t c, Flags flags);
  Result<RegexNode> class_node(const CodePointSet& set, std::string_view name, Flags flags);

  RegexTree tree_;
  std::map<std::string, std::uint32_t, std::less<>> class_places_;  // By their text in the pattern.
};

// Parses alternatives up to the end or to a ), which is not consumed.
Result<RegexNode> Parser::alternatives(Flags flags, int depth) {
  if (depth > kMaxRegexDepth) return invalid("groups nested too deeply");
  RegexNode node{.kind = Kind::kAlternatives};
  do {
    VOLTA_TRY(RegexNode part, sequence(flags, depth));
    node.parts.push_back(std::move(part));
  } while (take("|"));
  if (node.parts.size() > 1) return node;
  RegexNode only = std::move(node.parts.front());
  return only;
}

Result<RegexNode> Parser::sequence(Flags flags, int depth) {
  RegexNode node{.kind = Kind::kSequence};
  while (!at_end() && !sees("|") && !sees(")")) {
    const std::size_t begin = at_;
    VOLTA_TRY(RegexNode part, atom(flags, depth));
    VOLTA_TRY(part, repeated(std::move(part), begin));
    node.parts.push_back(std::move(part));
  }
  return node;
}

Result<RegexNode> Parser::atom(Flags flags, int depth) {
  const std::size_t begin = at_;
  const char c = pattern_[at_];
  if (c == '(') return group(flags, depth);
  if (c == '\\') return escaped(flags);
  if (c == '[') {
    VOLTA_TRY(const CodePointSet set, bracket(flags.any_case, depth));
    return class_node(set, pattern_.substr(begin, at_ - begin), flags);
  }
  VOLTA_TRY(const auto counted, count());
  if (counted) return invalid("nothing to repeat");
  if (take("^")) {
    return RegexNode{.kind = Kind::kAssertion, .assertion = Assertion::kLineBegin};
  }
  if (take("$")) return RegexNode{.kind = Kind::kAssertion, .assertion = Assertion::kLineEnd};
  if (take(".")) {
    const CodePointSet line_end({{'\n', '\n'}});
    if (flags.dot_is_all) return class_node(CodePointSet().complement(), "(?m).", flags);
    return class_node(line_end.complement(), ".", flags);
  }
  return character_node(take_character(), flags);
}

Result<RegexNode> Parser::group(Flags flags, int depth) {
  const std::size_t begin = at_;
  RegexNode node{.kind = Kind::kLook};
  if (take("(?=")) {
    node.look = Look::kAhead;
  } else if (take("(?!")) {
    node.look = Look::kNotAhead;
  } else if (take("(?<=")) {
    node.look = Look::kBehind;
  } else if (take("(?<!")) {
    node.look = Look::kNotBehind;
  } else if (take("(?>")) {
    node.look = Look::kAtomic;
  } else if (sees("(*")) {
    return unsupported(begin, begin + 2);
  } else if (take("(?:")) {
    node.kind = Kind::kSequence;
  } else if (take("(?")) {
    return group_with_flags(begin, flags, depth);
  } else {
    take("(");  // Its match is never used.
    node.kind = Kind::kSequence;
  }
  VOLTA_TRY(RegexNode inside, alternatives(flags, depth + 1));
  if (!take(")")) return invalid("unclosed (");
  if (node.kind == Kind::kSequence) return inside;
  node.parts.push_back(std::move(inside));
  return node;
}

// Parses the rest after (?. In (?i:...) the flags apply to the group. In (?i) they apply to the end
// of the surrounding group, and all of that, with its alternatives, becomes one part.
Result<RegexNode> Parser::group_with_flags(std::size_t begin, Flags flags, int depth) {
  bool value = true;
  for (; !at_end() && !sees(")") && !sees(":"); ++at_) {
    if (sees("-")) {
      value = false;
    } else if (sees("i")) {
      flags.any_case = value;
    } else if (sees("m")) {
      flags.dot_is_all = value;
    } else {
      return unsupported(begin, at_ + 1);
    }
  }
  if (take(")")) return alternatives(flags, depth + 1);
  if (!take(":")) return invalid("unclosed (");
  VOLTA_TRY(RegexNode inside, alternatives(flags, depth + 1));
  if (!take(")")) return invalid("unclosed (");
  return inside;
}

// Parses a count, if there is one here.
Result<std::optional<Count>> Parser::count() {
  if (take("*")) return Count{0, kUnlimited, false};
  if (take("+")) return Count{1, kUnlimited, false};
  if (take("?")) return Count{0, 1, false};
  return interval();
}

// Parses {2}, {2,3}, {2,} or {,3}. A { that begins otherwise is a character.
Result<std::optional<Count>> Parser::interval() {
  const std::size_t begin = at_;
  if (!take("{")) return std::nullopt;
  Count count{0, 0, true};
  const bool has_min = sees_digit();
  if (!has_min && !sees(",")) {
    at_ = begin;
    return std::nullopt;
  }
  if (has_min) count.min = count.max = number();
  if (take(",")) {
    const bool has_max = sees_digit();
    if (!has_min && !has_max) return unsupported(begin, at_ + 1);
    count.max = has_max ? number() : kUnlimited;
  }
  if (!take("}")) return unsupported(begin, at_ + 1);
  const bool too_many = count.min > kMaxCount || (count.max > kMaxCount && count.max != kUnlimited);
  if (too_many || count.min > count.max) return invalid("repetition counts too large or reversed");
  return count;
}

std::uint32_t Parser::number() {
  std::uint32_t value = 0;
  for (; sees_digit(); ++at_) {
    value = std::min(value * 10 + static_cast<std::uint32_t>(pattern_[at_] - '0'), kMaxCount + 1);
  }
  return value;
}

// Adds the quantifiers after the part that begins at `begin`.
Result<RegexNode> Parser::repeated(RegexNode node, std::size_t begin) {
  VOLTA_TRY(auto counted, count());
  while (counted) {
    const bool takes_nothing =
        node.kind == Kind::kAssertion || (node.kind == Kind::kLook && node.look != Look::kAtomic);
    if (takes_nothing) return unsupported(begin, at_);
    RegexNode outer{.kind = Kind::kRepeat, .min = counted->min, .max = counted->max};
    if (sees("?")) {
      // In Ruby, a{2}? means (?:a{2})?; elsewhere it is lazy.
      if (counted->interval && counted->min == counted->max) return unsupported(begin, at_ + 1);
      ++at_;
      outer.greed = Greed::kLazy;
    } else if (!counted->interval && take("+")) {
      outer.greed = Greed::kPossessive;
    }
    outer.parts.push_back(std::move(node));
    node = std::move(outer);
    // In Ruby, a{1,3}+ means (?:a{1,3})+. No other part may be repeated twice.
    const bool twice = counted->interval && node.greed == Greed::kGreedy && sees("+");
    VOLTA_TRY(counted, count());
    if (counted && !twice) return unsupported(begin, at_);
  }
  return node;
}

// Parses an escape outside of [...]. Only inside of [...] does Oniguruma apply (?i) to \p{Lu}.
Result<RegexNode> Parser::escaped(Flags flags) {
  const std::size_t begin = at_;
  VOLTA_TRY(const RegexItem item, escape(false));
  switch (item.kind) {
    case RegexItem::Kind::kCharacter:
      return character_node(item.character, flags);
    case RegexItem::Kind::kSet:
      return class_node(item.set, pattern_.substr(begin, at_ - begin), flags);
    case RegexItem::Kind::kAssertion:
      break;
  }
  return RegexNode{.kind = Kind::kAssertion, .assertion = item.assertion};
}

Result<RegexNode> Parser::character_node(char32_t c, Flags flags) {
  if (flags.any_case) {
    const CodePointSet cases = CodePointSet({{c, c}}).with_all_cases();
    const bool alone =
        cases.ranges().size() == 1 && cases.ranges().front().first == cases.ranges().front().last;
    std::string name = "(?i)";
    append_utf8(name, c);
    if (!alone) return class_node(cases, name, Flags());
  }
  return RegexNode{.kind = Kind::kCharacter, .character = c};
}

// `name`: the text of the class in the pattern.
Result<RegexNode> Parser::class_node(const CodePointSet& set, std::string_view name, Flags flags) {
  const auto place = static_cast<std::uint32_t>(tree_.classes.size());
  const auto [known, added] =
      class_places_.emplace(fmt::format("{}{}", flags.any_case ? "i" : "c", name), place);
  if (added) {
    if (place == kMaxPatternClasses) return invalid("too many classes");
    tree_.classes.emplace_back(set);
  }
  return RegexNode{.kind = Kind::kClass, .char_class = known->second};
}

}  // namespace

Result<RegexTree> parse_regex(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return fail(ErrorCode::kInvalidFile, fmt::format("it has {} bytes, at most {} are supported",
                                                     pattern.size(), kMaxPatternBytes));
  }
  if (const auto broken = find_invalid_utf8(pattern)) {
    return fail(ErrorCode::kInvalidFile, fmt::format("invalid UTF-8 at byte {}", *broken));
  }
  return Parser(pattern).parse();
}

}  // namespace volta::tokenizers
