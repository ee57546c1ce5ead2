#include "status_line.h"

#include <unistd.h>

#include <cstdlib>

#include "base/log.h"
#include "command.h"

namespace volta::cli {
namespace {

bool no_color() {
  const char* value = std::getenv("NO_COLOR");
  return value != nullptr && *value != '\0';
}

}  // namespace

StatusLine::StatusLine()
    : terminal_(::isatty(STDERR_FILENO) == 1), color_(terminal_ && !no_color()) {}

void StatusLine::show(std::string_view text, std::string_view bar) {
  if (!terminal_) return;
  note_raw("\r\033[K");
  if (color_ && !bar.empty()) note_raw("\033[36m");
  note(bar);
  if (color_ && !bar.empty()) note_raw("\033[0m");
  note(one_line(text));
  drawn_ = true;
}

void StatusLine::erase() {
  if (drawn_) note_raw("\r\033[K");
  drawn_ = false;
}

void StatusLine::keep() {
  if (drawn_) note("\n");
  drawn_ = false;
}

}  // namespace volta::cli
