#include "text/tokenizers/normalized_ranges.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>

namespace volta::tokenizers {
namespace {

// Whether a place is inside a character.
bool is_inside_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

class Borders {
 public:
  Borders(const Normalizer& normalizer, std::string_view text, std::string_view normalized,
          WorkBudget& budget)
      : normalizer_(normalizer),
        text_(text),
        normalized_(normalized),
        budget_(budget),
        bytes_left_(kMostPasses * text.size()) {}

  // The place of a border of the text in the normalized text; nullopt when it cannot be found.
  // Calls must be from left to right.
  Result<std::optional<std::size_t>> find(std::size_t border) {
    if (border >= text_.size()) return normalized_.size();
    if (border == last_.border) return last_.place;
    reached_ = last_.place;
    // Steps that depend on earlier text, such as those that join spaces, need an earlier start.
    for (const Known& start : std::array{last_, before_last_, Known{}}) {
      VOLTA_TRY(const auto place, find_from(start, border));
      if (!place) continue;
      before_last_ = start;
      last_ = {.border = border, .place = *place};
      reached_ = *place;
      return place;
    }
    return std::nullopt;
  }

  // The length of the normalized text that certainly comes from text before the last border.
  std::size_t reached() const { return reached_; }

 private:
  static constexpr std::size_t kMostPasses = 8;

  struct Known {
    std::size_t border = 0;
    std::size_t place = 0;
  };

  Result<std::optional<std::size_t>> find_from(const Known& start, std::size_t border) {
    const std::size_t length = border - start.border;
    if (length > bytes_left_) return std::nullopt;
    bytes_left_ -= length;
    VOLTA_TRY(const std::string part,
              normalizer_.normalize(text_.substr(start.border, length), budget_,
                                    {.begins = start.place == 0, .ends = false}));
    const std::string_view rest = normalized_.substr(start.place);
    if (rest.starts_with(part)) return start.place + part.size();
    if (part.starts_with(rest)) return normalized_.size();  // The end was stripped.
    const auto [differs, end] = std::ranges::mismatch(part, rest);
    reached_ =
        std::max(last_.place, start.place + static_cast<std::size_t>(differs - part.begin()));
    return std::nullopt;
  }

  const Normalizer& normalizer_;
  std::string_view text_;
  std::string_view normalized_;
  WorkBudget& budget_;
  std::size_t bytes_left_;  // The number of bytes that may still be normalized.
  Known last_;
  Known before_last_;
  std::size_t reached_ = 0;
};

}  // namespace

Result<std::vector<TextRange>> normalized_ranges(const Normalizer& normalizer,
                                                 std::string_view text, std::string_view normalized,
                                                 std::span<const TextRange> quoted,
                                                 WorkBudget& budget) {
  Borders borders(normalizer, text, normalized, budget);
  std::vector<TextRange> ranges;
  ranges.reserve(quoted.size());
  std::size_t open = 0;  // The first range whose end is not known yet.
  const auto close = [&](std::size_t end) {
    for (; open < ranges.size(); ++open) ranges[open].end = end;
  };
  for (const TextRange& range : quoted) {
    std::size_t first = range.begin;
    while (is_inside_character(text, first)) --first;
    VOLTA_TRY(const auto begin, borders.find(first));
    if (begin) close(*begin);
    ranges.push_back({.begin = begin ? *begin : borders.reached(), .end = normalized.size()});
    std::size_t last = range.end;
    while (is_inside_character(text, last)) ++last;
    VOLTA_TRY(const auto end, borders.find(last));
    if (end) close(*end);
  }
  return ranges;
}

}  // namespace volta::tokenizers
