// Log messages from the library to the program that embeds it. The callback is Volta's only global
// setting.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace [[gnu::visibility("default")]] volta {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// "debug", "info", "warning" or "error".
std::string_view log_level_name(LogLevel level);

/// Receives messages, one at a time, even if several threads log. Must not call log() or
/// set_log_callback().
using LogCallback = std::function<void(LogLevel level, std::string_view message)>;

/// Replaces the callback; an empty one restores the default, which writes warnings and errors to
/// stderr as "volta: warning: ..." and drops the rest.
void set_log_callback(LogCallback callback);

/// Escapes a message that may contain names from files, so that it is one line. It applies
/// escape_controls() (base/text.h), and also escapes line breaks as "\n", tabs as "\t", and
/// Unicode's line ends as "\u2028" and "\u2029". So a name in a file cannot add a line that looks
/// like a message of this program.
std::string one_line(std::string_view text);

/// Sends one message (without a newline) to the callback.
void log(LogLevel level, std::string_view message);

}  // namespace volta
