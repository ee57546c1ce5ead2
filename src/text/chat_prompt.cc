#include "text/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace volta {
namespace {

bool is_empty(const JsonValue* member) {
  if (member == nullptr || member->is_null()) return true;
  const std::string* text = member->if_string();
  const JsonValue::Array* list = member->if_array();
  return (text != nullptr && text->empty()) || (list != nullptr && list->empty());
}

// What is wrong with a message of a file; empty if nothing is. Other members are the template's
// concern. An assistant's message with neither text nor tool calls is a gap, which models would
// take as an example.
std::string_view mistake_in(const JsonValue& message) {
  if (message.if_object() == nullptr) {
    return R"(is not an object; a message is {"role": "user", "content": "Hi"})";
  }
  if (message_role(message).empty()) return R"(needs a "role" that is a text, such as "user")";
  if (message_role(message) != "assistant") return "";
  for (const std::string_view key :
       {"content", "tool_calls", "reasoning_content", "reasoning", "thinking"}) {
    if (!is_empty(message.find(key))) return "";
  }
  return R"(is an assistant's without text and tool calls; give it "content" or "tool_calls", or )"
         "leave it out";
}

}  // namespace

JsonValue make_message(std::string_view role, std::string_view content) {
  JsonValue::Object members;
  members.emplace_back("role", JsonValue(std::string(role)));
  members.emplace_back("content", JsonValue(std::string(content)));
  return JsonValue(std::move(members));
}

std::string_view message_role(const JsonValue& message) {
  const JsonValue* role = message.find("role");
  const std::string* text = role == nullptr ? nullptr : role->if_string();
  return text == nullptr ? std::string_view() : *text;
}

JsonValue with_text(const JsonValue& message, std::string text) {
  JsonValue::Object members;
  if (const JsonValue::Object* old = message.if_object()) members = *old;
  const auto content = std::ranges::find(members, "content", &JsonValue::Object::value_type::first);
  if (content == members.end()) {
    members.emplace_back("content", JsonValue(std::move(text)));
  } else {
    content->second = JsonValue(std::move(text));
  }
  return JsonValue(std::move(members));
}

const std::string* message_text(const JsonValue& message) {
  const JsonValue* content = message.find("content");
  return content == nullptr ? nullptr : content->if_string();
}

Status check_messages(const JsonValue::Array& messages, std::string_view name) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string_view mistake = mistake_in(messages[i]);
    if (mistake.empty()) continue;
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: message {} {}", name, i + 1, mistake));
  }
  return {};
}

Result<QuotedText> make_chat_prompt(const ChatTemplate& chat_template, JsonValue::Array messages,
                                    ChatOptions options) {
  options.add_generation_prompt = messages.empty() || message_role(messages.back()) != "assistant";
  if (options.add_generation_prompt) {
    return chat_template.render_quoted(JsonValue(std::move(messages)), options);
  }
  // A mark behind the text shows where it ends in the prompt.
  constexpr std::string_view kMark = "volta-continues-here";
  const std::string* text = message_text(messages.back());
  if (text == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "the last message is an assistant's without text: there is nothing to continue; "
                "end the conversation with a user's message or a tool's result");
  }
  messages.back() = with_text(messages.back(), *text + std::string(kMark));
  VOLTA_TRY(QuotedText prompt,
            chat_template.render_quoted(JsonValue(std::move(messages)), options));
  const std::size_t end = prompt.text.rfind(kMark);
  if (end == std::string::npos) {
    return fail(ErrorCode::kInvalidArgument,
                "the chat template does not show the last message, an assistant's, which the "
                "answer would continue; end the conversation with a user's message");
  }
  prompt.truncate(end);
  return prompt;
}

std::vector<std::int32_t> end_of_turn(const ChatTemplate& chat_template, const ChatOptions& options,
                                      const Tokenizer& tokenizer) {
  constexpr std::string_view kAnswer = "volta-answer";
  JsonValue::Array messages;
  for (const std::string_view role : {"user", "assistant", "user"}) {
    messages.push_back(make_message(role, kAnswer));
  }
  const auto prompt = chat_template.render(JsonValue(std::move(messages)), options);
  if (!prompt) return {};  // This conversation is a guess; the template may refuse it.
  std::size_t end = prompt->find(kAnswer);
  if (end != std::string::npos) end = prompt->find(kAnswer, end + kAnswer.size());
  if (end == std::string::npos) return {};
  std::string_view rest = std::string_view(*prompt).substr(end + kAnswer.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \n"), rest.size()));
  const auto ids = tokenizer.encode(rest);
  if (!ids || ids->empty()) return {};
  const std::vector<std::int32_t> first = {ids->front()};
  const bool special = tokenizer.decode(first).empty() && !tokenizer.decode_all(first).empty();
  return special ? first : std::vector<std::int32_t>();
}

}  // namespace volta
