// The conversation of volta chat: it reads messages and commands, and writes the answers. Knows no
// options of the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "chat_history.h"
#include "command.h"
#include "formats/conversation.h"
#include "line_editor.h"

namespace volta::cli {

/// Ctrl-C stops an answer of a terminal's conversation, and ends the program at the prompt or when
/// it is pressed again. Any other signal ends the program, after the answer has stopped.
void install_chat_signals();
/// Whether to stop the running computation: the user stops the answer, or the whole program.
bool chat_stopped();

class Chat {
 public:
  /// Call install_chat_signals() before the first answer. `context` is the most tokens of prompt
  /// and answer; `verbose` reports tokens.
  Chat(Conversation conversation, Output output, std::int64_t context, bool verbose);

  Conversation& conversation() { return conversation_; }
  /// Runs one turn: the answer goes to standard output.
  Status answer(JsonValue message);
  /// Answers the lines of standard input until it ends. On a terminal, a bad line is reported and
  /// skipped; elsewhere it ends the conversation. It is no error to stop an answer before its first
  /// token, while its prompt is made. An answer without text leaves the conversation as it was.
  Status run();

 private:
  Result<LineEnd> next_line(std::string& line);
  Status obey(const std::string& line);

  // The commands.
  Status help(const std::string& text);
  Status reset(const std::string& text);
  Status undo(const std::string& text);
  Status retry(const std::string& text);
  Status set_system(const std::string& text);
  Status save(const std::string& text);
  Status load(const std::string& text);

  void report(const Conversation::Answer& answer) const;

  Conversation conversation_;
  Output output_;
  std::int64_t context_;
  bool verbose_;
  std::optional<LineEditor> editor_;  // On a terminal that can be drawn on.
  History history_;
  bool answered_ = false;       // The last answer() has changed the conversation.
  bool output_failed_ = false;  // Standard output is gone, and with it the reason to go on.
};

}  // namespace volta::cli
