// How far long work is, on standard error: on a terminal one line that is drawn over, elsewhere (a
// pipe, a file) a line every ten seconds.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"

namespace volta::cli {

/// The line on the terminal goes with the object.
class Progress {
 public:
  enum class Elsewhere { kLines, kNothing };
  /// `elsewhere`: what is written where standard error is no terminal.
  explicit Progress(Elsewhere elsewhere = Elsewhere::kLines);
  ~Progress() { erase(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows what `make_text` returns in place of what was shown, behind a bar when `part` (0 to 1)
  /// is given. Most calls show nothing, and then do not make the text: a terminal is drawn ten
  /// times a second.
  template <std::invocable MakeText>
  void show(const MakeText& make_text, std::optional<double> part = {}) {
    if (due()) show_now(make_text(), part);
  }
  /// The same, whenever the last one was.
  void show_now(std::string_view text, std::optional<double> part = {});
  /// Whether it is time to show something.
  bool due() const;

  /// A line that stays, above what is shown.
  void print(std::string_view line);
  /// A line that stays: "volta: warning: ..." for warnings and errors, `text` alone for others.
  void message(LogLevel level, std::string_view text);
  /// Takes away what is shown, or leaves it and goes to the next line.
  void erase();
  void keep();

  bool on_terminal() const { return terminal_; }

 private:
  bool terminal_;
  bool color_;
  bool silent_;
  bool drawn_ = false;
  double shown_at_;
};

}  // namespace volta::cli
