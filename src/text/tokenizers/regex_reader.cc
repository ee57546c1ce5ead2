#include "text/tokenizers/regex_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "text/tokenizers/unicode.h"

namespace volta::tokenizers {
namespace {

using unicode::CodePointSet;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

char32_t RegexReader::take_character() {
  const unicode::Character c = unicode::character_at(pattern_, at_);
  at_ += c.length;
  return c.value;
}

std::unexpected<Error> RegexReader::invalid(std::string_view why) const {
  return fail(ErrorCode::kInvalidFile, fmt::format("{} at byte {}", why, at_));
}

std::unexpected<Error> RegexReader::unsupported(std::size_t begin, std::size_t end) const {
  end = std::min(end, pattern_.size());
  while (end < pattern_.size() && (static_cast<unsigned char>(pattern_[end]) & 0xC0) == 0x80) {
    ++end;
  }
  return fail(ErrorCode::kUnsupported, fmt::format("'{}' at byte {} is not supported",
                                                   pattern_.substr(begin, end - begin), begin));
}

// Reads an escape, from its backslash on.
Result<RegexItem> RegexReader::escape(bool in_class) {
  const std::size_t begin = at_++;
  if (at_end()) return invalid("a backslash at the end");
  constexpr std::string_view kLetters = "tnrfvae";
  constexpr std::string_view kMeanings = "\t\n\r\f\v\a\x1B";
  constexpr std::string_view kAssertions = "AzbB";
  const char c = pattern_[at_];
  if (!is_ascii_letter(c) && !is_digit(c)) {
    return RegexItem{.character = take_character()};
  }
  ++at_;
  if (const std::size_t place = kLetters.find(c); place != std::string_view::npos) {
    return RegexItem{.character = static_cast<char32_t>(kMeanings[place])};
  }
  if (c == 'b' && in_class) return RegexItem{.character = 8};
  if (kAssertions.find(c) != std::string_view::npos && !in_class) {
    return RegexItem{.kind = RegexItem::Kind::kAssertion,
                     .assertion = c == 'A'   ? Assertion::kTextBegin
                                  : c == 'z' ? Assertion::kTextEnd
                                  : c == 'b' ? Assertion::kWordBoundary
                                             : Assertion::kNoWordBoundary};
  }
  if (c == 'x' || c == 'u') {
    --at_;
    VOLTA_TRY(const char32_t value, hex_character(begin));
    return RegexItem{.character = value};
  }
  RegexItem item{.kind = RegexItem::Kind::kSet};
  switch (c) {
    case 's':
    case 'S':
      item.set = unicode::space_set();
      break;
    case 'd':
    case 'D':
      item.set = unicode::digit_set();
      break;
    case 'w':
    case 'W':
      item.set = unicode::word_set();
      break;
    case 'p':
    case 'P': {
      VOLTA_TRY(item.set, property(begin, c == 'P'));
      return item;
    }
    default:
      return unsupported(begin, at_);
  }
  if (c == 'S' || c == 'D' || c == 'W') item.set = item.set.complement();
  return item;
}

// Reads \x41, \x{41} or \u0041, from the x or u on.
Result<char32_t> RegexReader::hex_character(std::size_t begin) {
  const bool is_x = pattern_[at_++] == 'x';
  const bool braces = is_x && take("{");
  const std::size_t most = braces ? 8 : is_x ? 2 : 4;
  std::uint64_t value = 0;
  std::size_t digits = 0;
  for (; !at_end() && digits < most; ++at_, ++digits) {
    const char c = pattern_[at_];
    const char lower = static_cast<char>(c | 0x20);
    if (is_digit(c)) {
      value = value * 16 + static_cast<std::uint64_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + static_cast<std::uint64_t>(lower - 'a') + 10;
    } else {
      break;
    }
  }
  const bool complete = braces ? digits > 0 && take("}") : digits == most;
  // In Oniguruma, \x80 and above without braces are single bytes.
  const bool is_byte = is_x && !braces && value >= 0x80;
  if (!complete || is_byte || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    return unsupported(begin, at_);
  }
  return static_cast<char32_t>(value);
}

// Reads what follows \p or \P: {L}, {^Lu}, {Han}.
Result<CodePointSet> RegexReader::property(std::size_t begin, bool complement) {
  const std::size_t close = pattern_.substr(at_, 64).find('}');
  if (!sees("{") || close == std::string_view::npos) return unsupported(begin, at_);
  std::string_view name = pattern_.substr(at_ + 1, close - 1);
  at_ += close + 1;
  if (name.starts_with('^')) {
    name.remove_prefix(1);
    complement = !complement;
  }
  auto known = properties_.find(name);
  if (known == properties_.end()) {
    auto set = unicode::property_set(name);
    if (!set) return unsupported(begin, at_);
    known = properties_.emplace(name, *std::move(set)).first;
  }
  return complement ? known->second.complement() : known->second;
}

// Reads a class from its [ on. All cases of its characters are added to the outermost class only.
Result<CodePointSet> RegexReader::bracket(bool any_case, int depth) {
  if (depth > kMaxRegexDepth) return invalid("classes nested too deeply");
  take("[");
  const bool complement = take("^");
  VOLTA_TRY(CodePointSet set, bracket_part(depth));
  while (take("&&")) {
    VOLTA_TRY(const CodePointSet other, bracket_part(depth));
    set = set.intersected(other);
  }
  if (!take("]")) return invalid("unclosed [");
  if (any_case) set = set.with_all_cases();
  return complement ? set.complement() : std::move(set);
}

// Reads the part between [, && and ]. It has at least one item, so a ] at the front is a character.
Result<CodePointSet> RegexReader::bracket_part(int depth) {
  std::vector<CodePointSet::Range> ranges;
  CodePointSet set;
  bool any = false;
  while (!at_end() && !sees("&&") && (!any || !sees("]"))) {
    any = true;
    const std::size_t begin = at_;
    VOLTA_TRY(const RegexItem item, bracket_item(depth));
    if (item.kind == RegexItem::Kind::kSet) {
      set = set.united(item.set);
      continue;
    }
    char32_t last = item.character;
    // A minus at the end is a character.
    if (sees("-") && !pattern_.substr(at_).starts_with("-]") && at_ + 1 < pattern_.size()) {
      ++at_;
      VOLTA_TRY(const RegexItem end, bracket_item(depth));
      if (end.kind == RegexItem::Kind::kSet || end.character < item.character) {
        return unsupported(begin, at_);
      }
      last = end.character;
    }
    ranges.push_back({item.character, last});
  }
  if (!any) return invalid("an empty class");
  return set.united(CodePointSet(std::move(ranges)));
}

Result<RegexItem> RegexReader::bracket_item(int depth) {
  if (sees("\\")) return escape(true);
  if (!sees("[")) return RegexItem{.character = take_character()};
  if (sees("[:")) return unsupported(at_, at_ + 2);
  VOLTA_TRY(CodePointSet set, bracket(false, depth + 1));
  return RegexItem{.kind = RegexItem::Kind::kSet, .set = std::move(set)};
}

}  // namespace volta::tokenizers
