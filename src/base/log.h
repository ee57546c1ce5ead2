// Messages from the library to whoever embeds it. The callback is Volta's one piece of global
// state.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace [[gnu::visibility("default")]] volta {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// "debug", "info", "warning" or "error".
std::string_view log_level_name(LogLevel level);

/// Receives messages, one at a time whatever the threads. Must not call log() or
/// set_log_callback().
using LogCallback = std::function<void(LogLevel level, std::string_view message)>;

/// Replaces the callback; an empty one restores the default, which writes warnings and errors to
/// stderr as "volta: warning: ..." and drops the rest.
void set_log_callback(LogCallback callback);

/// A message that may hold names from files, as one line: escape_controls() (base/text.h), and what
/// would begin another line comes escaped, too: a line break as "\n", a tab as "\t", Unicode's own
/// line ends as "\u2028" and "\u2029". So no file makes a line that looks like this program's.
std::string one_line(std::string_view text);

/// Sends one message (without a newline) to the callback.
void log(LogLevel level, std::string_view message);

}  // namespace volta
