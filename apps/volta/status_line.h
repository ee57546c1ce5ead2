// A line on a terminal that is drawn over while work goes on.
#pragma once

#include <string_view>

namespace volta::cli {

/// Draws nothing where standard error is no terminal. The line goes with the object.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine() { erase(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool on_terminal() const { return terminal_; }
  /// Whether colours are wanted: NO_COLOR, https://no-color.org.
  bool has_color() const { return color_; }
  /// Shows a bar, if there is one, and a text behind it, in place of what was shown.
  void show(std::string_view text, std::string_view bar = {});
  void erase();
  /// Leaves what is shown where it is.
  void keep();

 private:
  bool terminal_;
  bool color_;
  bool drawn_ = false;
};

}  // namespace volta::cli
