#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/environment.h"
#include "base/text.h"
#include "command.h"
#include "terminal_input.h"

namespace volta::cli {
namespace {

constexpr int kWidestBar = 24;
constexpr int kNarrowestBar = 4;
constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 10.0;

// NO_COLOR, https://no-color.org.
bool no_color() { return !environment("NO_COLOR").empty(); }

// A line can be drawn over on standard error.
bool draws() {
  const std::string_view kind = environment("TERM");
  return ::isatty(STDERR_FILENO) == 1 && kind != "dumb" && !kind.empty();
}

// Whether the locale's characters are UTF-8, by the variables that decide it.
bool shows_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    std::string upper(value);
    std::ranges::transform(upper, upper.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    return upper.contains("UTF-8") || upper.contains("UTF8");
  }
  return true;  // Nothing is set, as in many containers; terminals of today show UTF-8.
}

// The beginning of a text of at most `columns` characters.
std::string_view first_characters(std::string_view text, int columns) {
  std::size_t end = 0;
  for (int i = 0; i < columns && end < text.size(); ++i) {
    const auto next = decode_utf8(text.substr(end));
    end += next ? static_cast<std::size_t>(next->length) : 1;
  }
  return text.substr(0, end);
}

int count_characters(std::string_view text) {
  int count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) == 0x80 ? 0 : 1;
  return count;
}

// The first parts of a text, which two spaces separate, that fit into `columns`. The first one is
// cut where it does not fit.
std::string_view first_parts(std::string_view text, int columns) {
  while (count_characters(text) > columns) {
    const std::size_t gap = text.rfind("  ");
    if (gap == std::string_view::npos) return first_characters(text, columns);
    text = text.substr(0, gap);
  }
  return text;
}

}  // namespace

ProgressLine fit_progress(std::string_view text, std::optional<double> part, int columns,
                          bool unicode) {
  ProgressLine line;
  if (columns < 2) return line;
  const int room = columns - 1;  // A terminal may wrap after its last column.
  const int cells = std::min(kWidestBar, room - count_characters(text) - 1);
  if (part && cells >= kNarrowestBar) {
    const int full = static_cast<int>(std::clamp(*part, 0.0, 1.0) * cells);
    for (int i = 0; i < cells; ++i) {
      line.bar += i < full ? (unicode ? "█" : "#") : (unicode ? "░" : ".");
    }
  }
  line.text = first_parts(text, room);
  return line;
}

Progress::Progress(Elsewhere elsewhere)
    : terminal_(draws() && !is_quiet()),
      color_(terminal_ && !no_color()),
      silent_(is_quiet() || (!terminal_ && elsewhere == Elsewhere::kNothing)),
      shown_at_(terminal_ ? 0.0 : monotonic_seconds()),
      logged_at_(monotonic_seconds()) {}

bool Progress::due() const {
  const double seconds = terminal_ ? kRedrawSeconds : kLineSeconds;
  return monotonic_seconds() - shown_at_ >= seconds;
}

void Progress::show_now(std::string_view text, std::optional<double> part) {
  shown_at_ = monotonic_seconds();
  const std::string line = one_line(text);
  if (!terminal_ || shown_at_ - logged_at_ >= kLineSeconds) {
    logged_at_ = shown_at_;
    if (terminal_ || silent_) {
      erase();  // A log that cannot be written gets a warning.
      log_to_file(line);
    }
  }
  if (silent_) return;
  if (!terminal_) {
    note(line + "\n");
    return;
  }
  const ProgressLine fitted = fit_progress(line, part, terminal_columns(), shows_unicode());
  note_raw("\r\033[K");
  if (!fitted.bar.empty()) {
    note_raw(color_ ? fmt::format("\033[36m{}\033[0m ", fitted.bar) : fitted.bar + " ");
  }
  note_raw(fitted.text);
  drawn_ = true;
}

void Progress::print(std::string_view line) {
  erase();
  note(fmt::format("{}\n", line));
  shown_at_ = monotonic_seconds();
}

void Progress::message(LogLevel level, std::string_view text) {
  erase();
  const bool problem = level == LogLevel::kWarning || level == LogLevel::kError;
  const std::string line = one_line(text);
  if (!problem || !color_) {
    note(problem ? fmt::format("volta: {}: {}\n", log_level_name(level), line) : line + "\n");
    return;
  }
  log_to_file(fmt::format("volta: {}: {}", log_level_name(level), line));
  note_raw(fmt::format("volta: \033[{}m{}\033[0m: {}\n", level == LogLevel::kError ? 31 : 33,
                       log_level_name(level), line));
}

void Progress::erase() {
  if (drawn_) note_raw("\r\033[K");
  drawn_ = false;
}

void Progress::keep() {
  if (drawn_) note_raw("\n");
  drawn_ = false;
}

}  // namespace volta::cli
