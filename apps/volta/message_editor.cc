#include "message_editor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"

namespace volta::cli {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

// The columns of a character on a terminal: 2 for East Asian ones and pictures, 0 for marks that
// are drawn over the character before them.
int columns_of(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  constexpr auto kNone = std::to_array<Range>(
      {{0x300, 0x36F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}});
  constexpr auto kTwo = std::to_array<Range>({{0x1100, 0x115F},
                                              {0x2E80, 0x303E},
                                              {0x3041, 0xA4CF},
                                              {0xAC00, 0xD7A3},
                                              {0xF900, 0xFAFF},
                                              {0xFE30, 0xFE6F},
                                              {0xFF00, 0xFF60},
                                              {0xFFE0, 0xFFE6},
                                              {0x1F300, 0x1FAFF},
                                              {0x20000, 0x3FFFD}});
  const auto holds = [c](const Range& range) { return c >= range.first && c <= range.last; };
  return std::ranges::any_of(kNone, holds) ? 0 : std::ranges::any_of(kTwo, holds) ? 2 : 1;
}

// A character of the message as it is shown.
struct Shown {
  std::string text;
  int columns = 1;
};
Shown shown_as(std::string_view character) {
  if (character == "\n") return {.text = "↵"};
  if (character == "\t") return {.text = " "};
  const auto code = decode_utf8(character);
  if (!code) return {.text = "?"};
  const std::string escaped = escape_controls(character);
  if (escaped != character) return {.text = "?"};
  return {.text = escaped, .columns = columns_of(code->value)};
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t'; }
bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::string MessageEditor::take() {
  at_ = 0;
  return std::exchange(text_, std::string());
}

void MessageEditor::set(std::string text) {
  text_ = std::move(text);
  at_ = text_.size();
}

bool MessageEditor::insert(std::string_view piece) {
  if (text_.size() + piece.size() > kMostMessageBytes) return false;
  text_.insert(at_, piece);
  at_ += piece.size();
  return true;
}

void MessageEditor::word_right() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  while (at_ < text_.size() && !is_space(text_[at_])) ++at_;
}

bool MessageEditor::take_backslash() {
  if (!text_.ends_with('\\') || at_ != text_.size()) return false;
  text_.pop_back();
  at_ = text_.size();
  return true;
}

std::string MessageEditor::drawing(std::string_view prompt, int columns) const {
  // A place for the cursor behind the last character.
  if (columns < static_cast<int>(prompt.size()) + 2) prompt = "";
  const int room = std::max(1, columns - static_cast<int>(prompt.size()) - 1);
  const auto columns_at = [this](std::size_t begin, std::size_t end) {
    return shown_as(std::string_view(text_).substr(begin, end - begin)).columns;
  };
  const int under_cursor = at_ < text_.size() ? columns_at(at_, after(at_)) : 0;
  std::size_t first = at_;
  int used = 0;
  while (first > 0) {  // The text before the cursor, as much as fits.
    const std::size_t previous = before(first);
    const int width = columns_at(previous, first);
    if (used + width > room - under_cursor) break;
    used += width;
    first = previous;
  }
  std::string visible;
  int shown = 0;
  for (std::size_t i = first; i < text_.size();) {
    const std::size_t next = after(i);
    const Shown character = shown_as(std::string_view(text_).substr(i, next - i));
    if (shown + character.columns > room) break;
    shown += character.columns;
    visible += character.text;
    i = next;
  }
  const int cursor = static_cast<int>(prompt.size()) + used;
  const std::string to_cursor = cursor > 0 ? fmt::format("\033[{}C", cursor) : "";
  // Behind the last column, terminals would erase what stands there.
  if (columns < 2) return fmt::format("\r\033[K{}\r{}", visible, to_cursor);
  return fmt::format("\r{}{}\033[K\r{}", prompt, visible, to_cursor);
}

std::size_t MessageEditor::before(std::size_t at) const {
  if (at == 0) return 0;
  --at;
  while (at > 0 && continues(text_[at])) --at;
  return at;
}

std::size_t MessageEditor::after(std::size_t at) const {
  if (at >= text_.size()) return text_.size();
  ++at;
  while (at < text_.size() && continues(text_[at])) ++at;
  return at;
}

std::size_t MessageEditor::word_begin() const {
  std::size_t begin = at_;
  while (begin > 0 && is_space(text_[begin - 1])) --begin;
  while (begin > 0 && !is_space(text_[begin - 1])) --begin;
  return begin;
}

void MessageEditor::erase(std::size_t begin, std::size_t end) {
  text_.erase(begin, end - begin);
  at_ = begin;
}

CleanText clean_paste(std::string_view pasted) {
  CleanText clean;
  clean.text.reserve(pasted.size());
  for (std::size_t i = 0; i < pasted.size();) {
    const char c = pasted[i];
    if (c == '\r') {
      clean.text += '\n';
      i += pasted.substr(i).starts_with("\r\n") ? 2 : 1;
      continue;
    }
    const auto point = decode_utf8(pasted.substr(i));
    if (!point) {
      append_utf8(clean.text, kReplacement);
      ++clean.replaced;
      ++i;
      continue;
    }
    const bool printable = (point->value >= ' ' && c != '\x7f') || c == '\n' || c == '\t';
    if (printable) clean.text += pasted.substr(i, static_cast<std::size_t>(point->length));
    i += static_cast<std::size_t>(point->length);
  }
  return clean;
}

}  // namespace volta::cli
