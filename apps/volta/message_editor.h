// A message while it is edited, and how it is drawn on a terminal: as one line that scrolls
// sideways, so that it fits any width. Knows no keys and reads nothing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace volta::cli {

/// The most bytes of a message.
inline constexpr std::size_t kMostMessageBytes = std::size_t{16} << 20;

/// A message and the place in it. Positions are bytes and always between characters.
class MessageEditor {
 public:
  const std::string& text() const { return text_; }
  /// The message; none is left.
  std::string take();
  bool empty() const { return text_.empty(); }
  void set(std::string text);
  /// Inserts valid UTF-8; false, and nothing is changed, when the message would be too long.
  [[nodiscard]] bool insert(std::string_view piece);

  void left() { at_ = before(at_); }
  void right() { at_ = after(at_); }
  void home() { at_ = 0; }
  void end() { at_ = text_.size(); }
  void word_left() { at_ = word_begin(); }
  void word_right();
  void erase_left() { erase(before(at_), at_); }
  void erase_right() { erase(at_, after(at_)); }
  void erase_word() { erase(word_begin(), at_); }
  void erase_to_end() { erase(at_, text_.size()); }
  void erase_to_home() { erase(0, at_); }
  /// Whether a backslash stands before the end, which it takes away.
  bool take_backslash();

  /// What draws the part around the cursor in the row of the terminal's cursor. The prompt is left
  /// out where nothing else would fit.
  std::string drawing(std::string_view prompt, int columns) const;

 private:
  std::size_t before(std::size_t at) const;
  std::size_t after(std::size_t at) const;
  std::size_t word_begin() const;
  void erase(std::size_t begin, std::size_t end);

  std::string text_;
  std::size_t at_ = 0;
};

/// Pasted text as a message can hold it: line breaks of any kind become \n, other control
/// characters but tabs are left out, and each byte that is not UTF-8 becomes U+FFFD.
struct CleanText {
  std::string text;
  std::size_t replaced = 0;  ///< Bytes that are not UTF-8.
};
CleanText clean_paste(std::string_view pasted);

}  // namespace volta::cli
