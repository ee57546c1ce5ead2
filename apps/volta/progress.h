// The progress of long work on standard error. On a terminal it is one line that is redrawn and
// fits its width; elsewhere (a pipe, a file, TERM=dumb) it is a new line every ten seconds. With
// --quiet there is none. A --log-file has the lines of a pipe.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"

namespace volta::cli {

/// What fits into a line of `columns` on a terminal: a bar of at most 24 cells when there is room
/// for 4, then the text. Two spaces separate the parts of the text; parts that do not fit are left
/// out from its end, and the first one is cut. Nothing for fewer than two columns.
struct ProgressLine {
  std::string bar;
  std::string text;
};
ProgressLine fit_progress(std::string_view text, std::optional<double> part, int columns,
                          bool unicode);

/// The destructor removes the line from the terminal.
class Progress {
 public:
  enum class Elsewhere { kLines, kNothing };
  /// `elsewhere`: what is written when standard error is not a terminal.
  explicit Progress(Elsewhere elsewhere = Elsewhere::kLines);
  ~Progress() { erase(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Replaces the shown text by the result of `make_text`, behind a bar when `part` (0 to 1) is
  /// given. Most calls show nothing and do not call `make_text`: a terminal is redrawn ten times
  /// per second.
  template <std::invocable MakeText>
  void show(const MakeText& make_text, std::optional<double> part = {}) {
    if (due()) show_now(make_text(), part);
  }
  /// The same, but at once, however recent the last text is.
  void show_now(std::string_view text, std::optional<double> part = {});
  /// Whether it is time to show something.
  bool due() const;

  /// Prints a line that stays; the shown line is removed.
  void print(std::string_view line);
  /// The same: "volta: warning: ..." for warnings and errors, `text` alone for other levels.
  void message(LogLevel level, std::string_view text);
  /// erase() removes the shown line; keep() leaves it and goes to the next line.
  void erase();
  void keep();

  bool on_terminal() const { return terminal_; }

 private:
  bool terminal_;
  bool color_;
  bool silent_;
  bool drawn_ = false;
  double shown_at_;
  double logged_at_;
};

}  // namespace volta::cli
