#include "text/tokenizers/char_class.h"

#include <algorithm>
#include <span>
#include <string>

#include "base/text.h"

namespace volta::tokenizers {
namespace {

using unicode::CodePointSet;
using Range = CodePointSet::Range;

constexpr char32_t kEnd = 0x110000;

// Divides the code points beyond ASCII into parts that have one category and are completely inside
// or outside of the set. Calls `visit(part, category, inside)` for each.
template <typename Visit>
void visit_parts(const CodePointSet& set, const Visit& visit) {
  const std::span<const std::uint32_t> runs = unicode::range_data();
  const std::span<const Range> ranges = set.ranges();
  std::size_t range = 0;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const char32_t run_end = run + 1 < runs.size() ? runs[run + 1] >> 10 : kEnd;
    const auto category = static_cast<int>(runs[run] & 31);
    for (char32_t at = std::max<char32_t>(runs[run] >> 10, 128); at < run_end;) {
      while (range < ranges.size() && ranges[range].last < at) ++range;
      const bool inside = range < ranges.size() && ranges[range].first <= at;
      char32_t end = run_end;
      if (range < ranges.size()) {
        end = std::min<char32_t>(end, inside ? ranges[range].last + 1 : ranges[range].first);
      }
      visit(Range{at, end - 1}, category, inside);
      at = end;
    }
  }
}

unsigned char first_byte(char32_t c) {
  if (c < 0x80) return static_cast<unsigned char>(c);
  if (c < 0x800) return static_cast<unsigned char>(0xC0 | c >> 6);
  if (c < 0x10000) return static_cast<unsigned char>(0xE0 | c >> 12);
  return static_cast<unsigned char>(0xF0 | c >> 18);
}

}  // namespace

CharClass::CharClass(const CodePointSet& set) {
  for (char32_t c = 0; c < 128; ++c) ascii_[c] = set.contains(c);
  for (const Range& range : set.ranges()) {
    for (int byte = first_byte(range.first); byte <= first_byte(range.last); ++byte) {
      const bool continues = byte >= 0x80 && byte < 0xC0;
      if (!continues) first_bytes_[static_cast<std::size_t>(byte)] = true;
    }
  }
  if (set.ranges().size() <= 8) {  // A search in so few is as fast as one of a category.
    for (const Range& range : set.ranges()) {
      if (range.last >= 128)
        exceptions_.push_back({std::max<char32_t>(range.first, 128), range.last});
    }
    return;
  }
  std::array<std::int64_t, 32> balance{};
  visit_parts(set, [&](const Range& part, int category, bool inside) {
    const auto count = static_cast<std::int64_t>(part.last) - part.first + 1;
    balance[static_cast<std::size_t>(category)] += inside ? count : -count;
  });
  for (std::size_t category = 0; category < balance.size(); ++category) {
    if (balance[category] > 0) categories_ |= 1U << category;
  }
  visit_parts(set, [&](const Range& part, int category, bool inside) {
    if (inside == ((categories_ >> category & 1) != 0)) return;
    if (!exceptions_.empty() && exceptions_.back().last + 1 == part.first) {
      exceptions_.back().last = part.last;
    } else {
      exceptions_.push_back(part);
    }
  });
  exceptions_.shrink_to_fit();
}

bool CharClass::is_exception(char32_t c) const {
  const auto after = std::ranges::upper_bound(exceptions_, c, {}, &Range::first);
  return after != exceptions_.begin() && c <= std::prev(after)->last;
}

}  // namespace volta::tokenizers
