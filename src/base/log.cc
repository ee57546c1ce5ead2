// The log callback, protected by a mutex.
#include "base/log.h"

#include <fmt/format.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

#include "base/text.h"

namespace volta {

namespace {

struct Sink {
  std::mutex mutex;
  LogCallback callback;
};

// A static variable of a function, so that it exists when other static objects log. It is never
// destroyed, because threads may log while the process ends.
Sink& sink() {
  static Sink& instance = *new Sink;
  return instance;
}

void write_to_stderr(LogLevel level, std::string_view message) {
  if (level < LogLevel::kWarning) return;
  const std::string line = fmt::format("volta: {}: {}\n", log_level_name(level), one_line(message));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

std::string_view log_level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

std::string one_line(std::string_view text) {
  const std::string escaped = escape_controls(text);
  std::string line;
  line.reserve(escaped.size());
  for (std::string_view rest = escaped; !rest.empty();) {
    const std::string_view end = rest.substr(0, 3);
    const bool unicode_end = end == "\u2028" || end == "\u2029";
    if (unicode_end) {
      line += end == "\u2028" ? "\\u2028" : "\\u2029";
    } else if (rest.front() == '\n') {
      line += "\\n";
    } else if (rest.front() == '\t') {
      line += "\\t";
    } else {
      line += rest.front();
    }
    rest.remove_prefix(unicode_end ? end.size() : 1);
  }
  return line;
}

void set_log_callback(LogCallback callback) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  s.callback = std::move(callback);
}

void log(LogLevel level, std::string_view message) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  if (s.callback) {
    s.callback(level, message);
  } else {
    write_to_stderr(level, message);
  }
}

}  // namespace volta
