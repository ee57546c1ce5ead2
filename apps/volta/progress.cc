#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "base/clock.h"
#include "command.h"

namespace volta::cli {
namespace {

constexpr int kBarWidth = 24;
constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 10.0;

// NO_COLOR, https://no-color.org.
bool no_color() {
  const char* value = std::getenv("NO_COLOR");
  return value != nullptr && *value != '\0';
}

std::string bar(double part) {
  std::string cells;
  for (int i = 0; i < kBarWidth; ++i) cells += i < static_cast<int>(part * kBarWidth) ? "█" : "░";
  return cells;
}

}  // namespace

Progress::Progress(Elsewhere elsewhere)
    : terminal_(::isatty(STDERR_FILENO) == 1),
      color_(terminal_ && !no_color()),
      silent_(!terminal_ && elsewhere == Elsewhere::kNothing),
      shown_at_(terminal_ ? 0.0 : monotonic_seconds()) {}

bool Progress::due() const {
  return !silent_ && monotonic_seconds() - shown_at_ >= (terminal_ ? kRedrawSeconds : kLineSeconds);
}

void Progress::show_now(std::string_view text, std::optional<double> part) {
  if (silent_) return;
  shown_at_ = monotonic_seconds();
  if (!terminal_) {
    note(one_line(text) + "\n");
    return;
  }
  note_raw("\r\033[K");
  if (part) {
    if (color_) note_raw("\033[36m");
    note(bar(*part));
    note_raw(color_ ? "\033[0m " : " ");
  }
  note(one_line(text));
  drawn_ = true;
}

void Progress::print(std::string_view line) {
  erase();
  note(fmt::format("{}\n", line));
  shown_at_ = monotonic_seconds();
}

void Progress::message(LogLevel level, std::string_view text) {
  erase();
  if (level == LogLevel::kWarning || level == LogLevel::kError) {
    note("volta: ");
    if (color_) note_raw(level == LogLevel::kError ? "\033[31m" : "\033[33m");
    note(log_level_name(level));
    if (color_) note_raw("\033[0m");
    note(": ");
  }
  note(fmt::format("{}\n", one_line(text)));
}

void Progress::erase() {
  if (drawn_) note_raw("\r\033[K");
  drawn_ = false;
}

void Progress::keep() {
  if (drawn_) note("\n");
  drawn_ = false;
}

}  // namespace volta::cli
