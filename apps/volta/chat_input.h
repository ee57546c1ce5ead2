// What the command line of volta chat gives to the conversation: messages, functions, and names for
// the template.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "options.h"
#include "text/chat_template.h"

namespace volta::cli {

struct ChatInput {
  std::optional<std::string> system;
  std::vector<std::string> prompts;  // One at most; "-": standard input.
  std::string prompt_file;           // In place of a prompt; "-": standard input.
  std::string messages_file, tools_file;
  std::string template_file;           // A template instead of the model's.
  std::vector<std::string> variables;  // NAME=JSON
  std::string date;                    // YYYY-MM-DD; empty: today.

  /// Whether the messages of the command line are answered, and not lines of standard input.
  bool has_question() const {
    return !prompts.empty() || !prompt_file.empty() || !messages_file.empty();
  }
};

void add_chat_input(Command& command, ChatInput& input);

/// The functions of --tools; nullopt without that option. kIo, kInvalidFile.
Result<std::optional<JsonValue>> read_tools(const ChatInput& input);
/// The messages in a file, which is no pipe: a JSON array of at least one. kIo, kInvalidFile.
Result<JsonValue::Array> read_messages(const std::string& path);
/// Everything that the template sees but the messages. `tools` may be null and must outlive the
/// result. Rendering ends when `stop` returns true.
Result<ChatOptions> chat_options(const ChatInput& input, const JsonValue* tools,
                                 std::function<bool()> stop);
/// The messages that the command line gives, in this order: --system, --messages, and --prompt or
/// --file. kIo, kInvalidFile, kInvalidArgument.
Result<JsonValue::Array> first_messages(const ChatInput& input);

}  // namespace volta::cli
