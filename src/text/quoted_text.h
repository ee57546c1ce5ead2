// Text from two origins: the words of a chat template, and the quoted text of messages. The origin
// determines whether a tokenizer may find special tokens in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace [[gnu::visibility("default")]] volta {

/// The bytes from `begin` to `end` of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

/// A text and its quoted parts.
struct QuotedText {
  std::string text;
  std::vector<TextRange> quoted;  ///< In order; no range is empty or adjacent to the next.

  void append(std::string_view own) { text += own; }
  void append_quoted(std::string_view words) {
    const std::size_t begin = text.size();
    text += words;
    quote(begin, text.size());
  }
  /// Appends bytes of another text with their origin.
  void append_part(const QuotedText& other, std::size_t begin, std::size_t length) {
    const std::size_t end = begin + length;
    const std::size_t here = text.size();
    text.append(other.text, begin, length);
    auto range = std::ranges::upper_bound(other.quoted, begin, {}, &TextRange::end);
    for (; range != other.quoted.end() && range->begin < end; ++range) {
      quote(here + std::max(range->begin, begin) - begin, here + std::min(range->end, end) - begin);
    }
  }
  /// Removes everything after `size` bytes.
  void truncate(std::size_t size) {
    text.resize(size);
    while (!quoted.empty() && quoted.back().begin >= size) quoted.pop_back();
    if (!quoted.empty()) quoted.back().end = std::min(quoted.back().end, size);
  }

 private:
  void quote(std::size_t begin, std::size_t end) {
    if (begin == end) return;
    if (!quoted.empty() && quoted.back().end == begin) {
      quoted.back().end = end;
      return;
    }
    if (quoted.capacity() == 0) quoted.reserve(4);  // Composed texts usually have several ranges.
    quoted.push_back({begin, end});
  }
};

}  // namespace volta
