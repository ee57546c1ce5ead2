// The keyboard of a terminal, byte by byte, and changes of the window's size. Knows no keys: what
// the bytes mean is the line editor's business.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace volta::cli {

/// Whether standard input and standard error are a terminal that can be drawn on.
bool can_edit_lines();
/// The columns of the terminal; 80 when it does not tell.
int terminal_columns();
/// Gives the terminal back as it was. For signal handlers.
void restore_terminal();

/// The terminal sends every key as it is pressed, for as long as this object lives.
class RawMode {
 public:
  RawMode() { enter(); }
  ~RawMode() { restore_terminal(); }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;

  bool is_on() const;
  void enter() const;
};

/// The bytes of standard input, which is a terminal. One object lives at a time.
class TerminalInput {
 public:
  TerminalInput();

  /// Calls `on_resize` from read() when the window has another size, for as long as this object
  /// lives.
  class WatchSize {
   public:
    WatchSize(TerminalInput& input, std::function<void()> on_resize);
    ~WatchSize();
    WatchSize(const WatchSize&) = delete;
    WatchSize& operator=(const WatchSize&) = delete;

   private:
    TerminalInput& input_;
  };

  /// Waits for the next byte; nothing at the end of the input.
  std::optional<char> read();
  /// The next byte if it comes in this time.
  std::optional<char> read_within(std::chrono::milliseconds time);
  /// Gives a byte back, which is read next.
  void put_back(char byte);

  struct Text {
    std::string text;
    bool too_long = false;  ///< There was more than was asked for; `text` is empty.
  };
  /// Everything before `end`, which is read, too; nothing at the end of the input. Of a text that
  /// is longer than `most` bytes all is read, and none kept.
  std::optional<Text> read_until(std::string_view end, std::size_t most);

 private:
  // Reads up to `most` bytes into an empty buffer; false at the end of the input or the time.
  bool fill(std::size_t most, std::optional<std::chrono::milliseconds> time);
  std::optional<char> take();

  std::string buffer_;
  std::size_t taken_ = 0;
  Descriptor resized_;  // The reading end of a pipe, into which the signal handler writes.
  Descriptor resizes_;
  std::function<void()> on_resize_;
};

}  // namespace volta::cli
