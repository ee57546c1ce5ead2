#include "text/tokenizers/code_point_set.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "text/tokenizers/unicode.h"

namespace volta::unicode {
namespace {

using Range = CodePointSet::Range;
constexpr char32_t kLast = 0x10FFFF;

// Appends a range. It must not begin before the last one.
void append(std::vector<Range>& ranges, const Range& next) {
  if (!ranges.empty() && next.first <= ranges.back().last + 1) {
    ranges.back().last = std::max(ranges.back().last, next.last);
  } else {
    ranges.push_back(next);
  }
}

// The runs in `data` whose number is `wanted`. Run i begins at code point `data[i] >> bits`.
template <typename Wanted>
CodePointSet runs_of(std::span<const std::uint32_t> data, int bits, const Wanted& wanted) {
  std::vector<Range> ranges;
  const std::uint32_t mask = (1U << bits) - 1;
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (!wanted(data[i] & mask)) continue;
    const char32_t last = i + 1 < data.size() ? (data[i + 1] >> bits) - 1 : kLast;
    append(ranges, {data[i] >> bits, last});
  }
  return CodePointSet(std::move(ranges));
}

template <typename Wanted>
CodePointSet with_properties(const Wanted& wanted) {
  return runs_of(range_data(), 10, [&](std::uint32_t bits) {
    return wanted(Properties(static_cast<std::uint16_t>(bits)));
  });
}

// "lu" becomes "Lu".
std::string capitalized(std::string_view name) {
  std::string out(name);
  for (std::size_t i = 0; i < out.size(); ++i) {
    char& c = out[i];
    if (i == 0 && c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
    if (i != 0 && c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

// A code point that has other cases, and the common folding of all of them.
struct Case {
  char32_t folded, code;
  auto operator<=>(const Case&) const = default;
};

struct Cases {
  std::vector<Case> by_code;
  std::vector<Case> by_folded;
};

Cases find_cases() {
  Cases cases;
  const CodePointSet candidates =
      with_properties([](Properties p) {
        return p.has_category("Lu") || p.has_category("Ll") || p.has_category("Lt") ||
               p.has_category("Nl") || p.has_category("So");
      }).united(CodePointSet({{0x345, 0x345}}));  // The only mark with cases.
  for (const Range& range : candidates.ranges()) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      cases.by_folded.push_back({fold_case(c), c});
    }
  }
  std::sort(cases.by_folded.begin(), cases.by_folded.end());
  std::vector<Case> several;  // A code point that alone folds to its value has no cases.
  for (std::size_t i = 0; i < cases.by_folded.size(); ++i) {
    const char32_t folded = cases.by_folded[i].folded;
    const bool as_before = i > 0 && cases.by_folded[i - 1].folded == folded;
    const bool as_after = i + 1 < cases.by_folded.size() && cases.by_folded[i + 1].folded == folded;
    if (as_before || as_after) several.push_back(cases.by_folded[i]);
  }
  cases.by_folded = several;
  std::ranges::sort(several, {}, &Case::code);
  cases.by_code = std::move(several);
  return cases;
}

}  // namespace

CodePointSet::CodePointSet(std::vector<Range> ranges) {
  const auto before = [](const Range& a, const Range& b) { return a.first < b.first; };
  if (!std::is_sorted(ranges.begin(), ranges.end(), before)) {
    std::sort(ranges.begin(), ranges.end(), before);
  }
  for (const Range& range : ranges) append(ranges_, range);
}

bool CodePointSet::contains(char32_t c) const {
  const auto after = std::ranges::upper_bound(ranges_, c, {}, &Range::first);
  return after != ranges_.begin() && c <= std::prev(after)->last;
}

CodePointSet CodePointSet::united(const CodePointSet& other) const {
  CodePointSet result;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() || b != other.ranges_.end()) {
    const bool from_a = b == other.ranges_.end() || (a != ranges_.end() && a->first <= b->first);
    append(result.ranges_, from_a ? *a++ : *b++);
  }
  return result;
}

CodePointSet CodePointSet::intersected(const CodePointSet& other) const {
  return complement().united(other.complement()).complement();
}

CodePointSet CodePointSet::complement() const {
  CodePointSet result;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) result.ranges_.push_back({next, kLast});
  return result;
}

CodePointSet CodePointSet::with_all_cases() const {
  static const Cases cases = find_cases();
  std::vector<Range> ranges = ranges_;
  for (const Range& range : ranges_) {
    for (auto own = std::ranges::lower_bound(cases.by_code, range.first, {}, &Case::code);
         own != cases.by_code.end() && own->code <= range.last; ++own) {
      for (const Case& other :
           std::ranges::equal_range(cases.by_folded, own->folded, {}, &Case::folded)) {
        ranges.push_back({other.code, other.code});
      }
    }
  }
  return CodePointSet(std::move(ranges));
}

std::optional<CodePointSet> property_set(std::string_view name) {
  const std::string wanted = capitalized(name);
  if (wanted.empty()) return std::nullopt;
  if (wanted.size() <= 2) {
    CodePointSet set = with_properties([&](Properties p) { return p.has_category(wanted); });
    if (set.empty()) return std::nullopt;
    return set;
  }
  const std::span<const std::string_view> names = script_names();
  const auto script = std::ranges::find(names, wanted);
  if (script == names.end()) return std::nullopt;
  const auto number = static_cast<std::uint32_t>(script - names.begin()) + 1;
  return runs_of(script_data(), 8, [&](std::uint32_t n) { return n == number; });
}

const CodePointSet& space_set() {
  static const CodePointSet set({{9, 13},
                                 {' ', ' '},
                                 {0x85, 0x85},
                                 {0xA0, 0xA0},
                                 {0x1680, 0x1680},
                                 {0x2000, 0x200A},
                                 {0x2028, 0x2029},
                                 {0x202F, 0x202F},
                                 {0x205F, 0x205F},
                                 {0x3000, 0x3000}});
  return set;
}

const CodePointSet& digit_set() {
  static const CodePointSet set =
      with_properties([](Properties p) { return p.has_category("Nd"); });
  return set;
}

// Oniguruma's \w. It differs from is_word(), which follows Rust: it lacks the joiners, and it has
// the superscripts and fractions of Latin-1.
const CodePointSet& word_set() {
  static const CodePointSet set =
      with_properties([](Properties p) {
        return p.is_letter() || p.is_mark() || p.is_word_number() || p.is_connector();
      })
          .united(CodePointSet({{0xB2, 0xB3},
                                {0xB9, 0xB9},
                                {0xBC, 0xBE},
                                {0x24B6, 0x24E9},
                                {0x1F130, 0x1F149},
                                {0x1F150, 0x1F169},
                                {0x1F170, 0x1F189}}));
  return set;
}

}  // namespace volta::unicode
