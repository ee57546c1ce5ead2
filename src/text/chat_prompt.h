// The prompt of a conversation: a chat template rendered for messages, an assistant's message that
// is continued, and the token that ends an answer. Knows no model. A conversation with a model is
// in formats/conversation.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/chat_template.h"
#include "text/quoted_text.h"
#include "text/tokenizer.h"

namespace [[gnu::visibility("default")]] volta {

/// {"role": ..., "content": ...}
JsonValue make_message(std::string_view role, std::string_view content);
/// The role of a message; empty when it has none.
std::string_view message_role(const JsonValue& message);
/// The text of a message; null when its content is missing or is not a text.
const std::string* message_text(const JsonValue& message);
/// A copy of a message with another text as its content.
JsonValue with_text(const JsonValue& message, std::string text);

/// Refuses a message that is not an object or has no role, and an assistant's message with neither
/// text nor thoughts nor tool calls: it is a gap in a file, which models would take as an example.
/// kInvalidFile, with `name` and the message's number.
Status check_messages(const JsonValue::Array& messages, std::string_view name);

/// The prompt of a conversation. It ends with the beginning of an answer. If the last message is an
/// assistant's, it ends with the text of that message, which the answer will continue.
/// kInvalidArgument when that message has no text or the template does not show it; and the errors
/// of ChatTemplate::render_quoted().
Result<QuotedText> make_chat_prompt(const ChatTemplate& chat_template, JsonValue::Array messages,
                                    ChatOptions options);

/// The token that ends an answer according to the template: the token that it puts after an
/// assistant's message, if that is a special token. Empty or one id.
std::vector<std::int32_t> end_of_turn(const ChatTemplate& chat_template, const ChatOptions& options,
                                      const Tokenizer& tokenizer);

}  // namespace volta
