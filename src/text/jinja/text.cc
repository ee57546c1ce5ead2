#include "text/jinja/text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "text/tokenizers/unicode.h"

namespace volta::jinja {
namespace {

using unicode::character_at;
using unicode::character_before;

constexpr std::size_t kShortNeedle = 16;

char32_t map(char32_t c, utf8proc_int32_t (*function)(utf8proc_int32_t)) {
  return static_cast<char32_t>(function(static_cast<utf8proc_int32_t>(c)));
}

struct Range {
  char32_t first, last;
};
// Characters whose upper or title case has several characters, from SpecialCasing.txt.
constexpr std::array kLongUpper = {
    Range{0xDF, 0xDF},     Range{0x149, 0x149},   Range{0x1F0, 0x1F0},
    Range{0x390, 0x390},   Range{0x3B0, 0x3B0},   Range{0x587, 0x587},
    Range{0x1E96, 0x1E9A}, Range{0x1F50, 0x1FFC}, Range{0xFB00, 0xFB17}};

Status append_case(std::string& out, char32_t c, Letters wanted) {
  if (c < 0x80) {
    const bool small = c >= 'a' && c <= 'z', large = c >= 'A' && c <= 'Z';
    if (wanted == Letters::kLower ? large : small) c ^= 0x20;
    out += static_cast<char>(c);
    return {};
  }
  const bool hard = wanted == Letters::kLower
                        ? c == 0x130 || c == 0x3A3
                        : std::ranges::any_of(kLongUpper, [c](const Range& range) {
                            return c >= range.first && c <= range.last;
                          });
  if (hard) {
    return fail(ErrorCode::kUnsupported, fmt::format("the letter case of U+{:04X} is not supported",
                                                     static_cast<std::uint32_t>(c)));
  }
  append_utf8(out, map(c, wanted == Letters::kUpper   ? utf8proc_toupper
                          : wanted == Letters::kLower ? utf8proc_tolower
                                                      : utf8proc_totitle));
  return {};
}

bool is_category(char32_t c, std::string_view name) {
  return unicode::properties()[c].has_category(name);
}
bool is_cased(char32_t c) {
  return is_category(c, "Lu") || is_category(c, "Ll") || is_category(c, "Lt");
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  return !is_category(c, "C") && !is_category(c, "Z");
}

template <typename Drops>
std::string_view strip_if(std::string_view text, bool left, bool right, const Drops& drops) {
  while (left && !text.empty()) {
    const auto c = character_at(text, 0);
    if (!drops(c.value, text.substr(0, c.length))) break;
    text.remove_prefix(c.length);
  }
  while (right && !text.empty()) {
    const std::size_t at = character_before(text, text.size());
    if (!drops(character_at(text, at).value, text.substr(at))) break;
    text = text.substr(0, at);
  }
  return text;
}

// Appends a part of a text, unless the budget is spent.
void add_part(Budget& budget, std::vector<std::string_view>& parts, std::string_view part) {
  if (budget.make_bytes(sizeof(std::string_view))) parts.push_back(part);
}

}  // namespace

Searcher::Searcher(Budget& budget, std::string_view needle) : budget_(&budget), needle_(needle) {
  budget.scan(needle.size());
  if (needle.size() <= kShortNeedle) return;
  if (!budget.make_many(needle.size(), sizeof(std::size_t))) return;
  // The algorithm of Knuth, Morris and Pratt.
  borders_.assign(needle.size(), 0);
  for (std::size_t i = 1, border = 0; i < needle.size(); ++i) {
    while (border > 0 && needle[i] != needle[border]) border = borders_[border - 1];
    if (needle[i] == needle[border]) ++border;
    borders_[i] = border;
  }
}

std::size_t Searcher::find(std::string_view text, std::size_t from) const {
  if (budget_->spent()) return std::string_view::npos;
  if (borders_.empty()) return text.find(needle_, from);
  for (std::size_t i = from, matched = 0; i < text.size(); ++i) {
    while (matched > 0 && text[i] != needle_[matched]) matched = borders_[matched - 1];
    if (text[i] == needle_[matched]) ++matched;
    if (matched == needle_.size()) return i + 1 - matched;
  }
  return std::string_view::npos;
}

bool is_space(char32_t c) { return unicode::is_space(c) || (c >= 0x1C && c <= 0x1F); }

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::size_t character_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += character_at(text, at).length;
  return at;
}

std::string_view strip(std::string_view text, bool left, bool right) {
  return strip_if(text, left, right, [](char32_t c, std::string_view) { return is_space(c); });
}
std::string_view strip(Budget& budget, std::string_view text, bool left, bool right,
                       std::string_view set) {
  return strip_if(text, left, right, [&](char32_t, std::string_view character) {
    return budget.scan(set.size()) && set.find(character) != std::string_view::npos;
  });
}

std::vector<std::string_view> split(Budget& budget, std::string_view text,
                                    std::string_view separator, std::int64_t most) {
  std::vector<std::string_view> parts;
  const auto more = [&] {
    return !budget.spent() && (most < 0 || static_cast<std::int64_t>(parts.size()) < most);
  };
  const Searcher searcher(budget, separator);
  std::size_t begin = 0;
  while (more()) {
    const std::size_t end = searcher.find(text, begin);
    if (end == std::string_view::npos) break;
    add_part(budget, parts, text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  add_part(budget, parts, text.substr(begin));
  return parts;
}

std::vector<std::string_view> split_words(Budget& budget, std::string_view text,
                                          std::int64_t most) {
  std::vector<std::string_view> words;
  for (text = strip(text, true, false); !text.empty() && !budget.spent();) {
    const bool whole = most >= 0 && static_cast<std::int64_t>(words.size()) == most;
    std::size_t end = whole ? text.size() : 0;
    while (end < text.size() && !is_space(character_at(text, end).value)) {
      end += character_at(text, end).length;
    }
    add_part(budget, words, text.substr(0, end));
    text = strip(text.substr(end), true, false);
  }
  return words;
}

std::vector<std::string_view> splitlines(Budget& budget, std::string_view text) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size() && !budget.spent();) {
    const auto c = character_at(text, at);
    std::size_t after = at + c.length;
    if (is_line_end(c.value)) {
      if (c.value == '\r' && text.substr(after).starts_with('\n')) ++after;
      add_part(budget, lines, text.substr(begin, at - begin));
      begin = after;
    }
    at = after;
  }
  if (begin < text.size()) add_part(budget, lines, text.substr(begin));
  return lines;
}

Result<std::string> change_case(std::string_view text, Letters letters) {
  std::string out;
  bool inside = false;  // Behind the first character of a word, or of the text for kCapital.
  const Letters first = letters == Letters::kWords ? Letters::kUpper : letters;
  for (std::size_t at = 0; at < text.size();) {
    const auto c = character_at(text, at);
    VOLTA_TRY(append_case(out, c.value, inside ? Letters::kLower : first));
    inside = letters == Letters::kCapital || (letters == Letters::kTitle && is_cased(c.value)) ||
             (letters == Letters::kWords && !is_space(c.value) &&
              std::string_view("-({[<").find(text[at]) == std::string_view::npos);
    at += c.length;
  }
  return out;
}

std::string quoted(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const bool use_double = single && text.find('"') == std::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const auto c = character_at(text, at);
    const auto value = static_cast<std::uint32_t>(c.value);
    if (value == static_cast<unsigned char>(quote) || value == '\\') {
      out += '\\';
      out += static_cast<char>(value);
    } else if (value == '\n' || value == '\r' || value == '\t') {
      out += value == '\n' ? "\\n" : value == '\r' ? "\\r" : "\\t";
    } else if (printable(c.value)) {
      out += text.substr(at, c.length);
    } else if (value < 0x100) {
      out += fmt::format("\\x{:02x}", value);
    } else if (value < 0x10000) {
      out += fmt::format("\\u{:04x}", value);
    } else {
      out += fmt::format("\\U{:08x}", value);
    }
    at += c.length;
  }
  return out + quote;
}

}  // namespace volta::jinja
