// Reads messages from a terminal with editing keys and a history. Everywhere else than on a
// terminal, volta chat reads plain lines.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "chat_history.h"
#include "terminal_input.h"

namespace volta::cli {

/// How LineEditor::read() ended.
enum class LineEnd { kMessage, kEndOfInput, kInterrupted };

class LineEditor {
 public:
  /// Reads one message. Enter ends it; a backslash before Enter, Alt-Enter and pasted line breaks
  /// become line breaks. Arrows, Home, End, Ctrl-A, E, B, F, D, K, U, W, L and Alt-B and F
  /// edit; Up and Down go through the history. kEndOfInput: Ctrl-D in an empty message;
  /// kInterrupted: Ctrl-C in an empty message (in any other, it empties the message). The line is
  /// drawn again when the window gets another size.
  Result<LineEnd> read(std::string_view prompt, const History& history, std::string& message);

 private:
  TerminalInput input_;
};

}  // namespace volta::cli
