// Reads messages from a terminal with editing keys and a history. A message is edited as one line
// that scrolls sideways, so it fits any terminal; its line breaks are shown as a sign. Everywhere
// else than on a terminal, volta chat reads plain lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace volta::cli {

/// The messages of earlier conversations, in a file with one per line (line breaks and backslashes
/// escaped), readable by the user alone.
class History {
 public:
  /// The newest entries of the file at `path`; a file that is missing or unreadable gives none. An
  /// empty path: nothing is stored.
  explicit History(std::string path);
  const std::vector<std::string>& entries() const { return entries_; }
  /// Adds an entry that is not the last one again, and appends it to the file. kIo when that fails;
  /// the entry is in the history nevertheless, and later ones are not written.
  Status add(const std::string& entry);

 private:
  std::string path_;
  std::vector<std::string> entries_;
};
/// VOLTA_HISTORY, or chat_history in VOLTA_CACHE_DIR, or in ~/.volta; empty when VOLTA_HISTORY is
/// set to nothing.
std::string history_path();

/// Whether standard input and standard error are a terminal that can be drawn on.
bool can_edit_lines();

/// How read_message() ended.
enum class LineEnd { kMessage, kEndOfInput, kInterrupted };

/// Reads one message. Enter ends it; a backslash before Enter, Alt-Enter and pasted line breaks
/// become line breaks. Arrows, Home, End, Ctrl-A, E, B, F, D, K, U, W, L and Alt-B and F
/// edit; Up and Down go through the history. kEndOfInput: Ctrl-D in an empty message; kInterrupted:
/// Ctrl-C in an empty message (in any other, it empties the message).
Result<LineEnd> read_message(std::string_view prompt, const History& history, std::string& message);
/// Gives the terminal back as it was. For signal handlers.
void restore_terminal();

}  // namespace volta::cli
