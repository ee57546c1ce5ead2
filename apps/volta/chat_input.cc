#include "chat_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "command.h"
#include "text/chat_prompt.h"

namespace volta::cli {
namespace {

constexpr std::int64_t kMaxMessageBytes = 64 << 20;

// Reads a JSON file that the command line names.
Result<JsonValue> read_json(const std::string& path) {
  VOLTA_TRY(const std::string text, read_input(path, kMaxMessageBytes));
  return parse_json(skip_byte_order_mark(text), input_name(path));
}

Result<JsonValue::Array> messages_of(const JsonValue& json, const std::string& name) {
  const JsonValue::Array* array = json.if_array();
  if (array != nullptr && !array->empty()) {
    VOLTA_TRY(check_messages(*array, name));
    return *array;
  }
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: {}: "
                          R"([{{"role": "user", "content": "Hi"}}])",
                          name,
                          array != nullptr ? "the array is empty; expected at least one message"
                                           : "expected an array of messages"));
}

// The message of a file, or of standard input.
Result<std::string> read_message(const std::string& path) {
  VOLTA_TRY(std::string text, read_prompt(path, kMaxMessageBytes));
  const auto mistake = utf8_mistake(text);
  if (!mistake) return text;
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", input_name(path), *mistake));
}

// The message of --prompt or --file.
Result<std::optional<std::string>> read_question(const ChatInput& input) {
  if (input.prompts.size() > 1) {
    return fail(ErrorCode::kInvalidArgument,
                "--prompt: one message is answered; give a conversation with --messages");
  }
  if (!input.prompt_file.empty()) return read_message(input.prompt_file);
  if (input.prompts.empty()) return std::nullopt;
  const std::string& text = input.prompts.front();
  if (text == kStandardStream) return read_message(text);
  return text;
}

// Parses NAME=JSON; a value that is not JSON is taken as text.
Result<std::pair<std::string, JsonValue>> parse_variable(const std::string& text) {
  const std::size_t end = text.find('=');
  if (end == std::string::npos || end == 0) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--var {}: expected NAME=VALUE", text));
  }
  if (const auto invalid = find_invalid_utf8(text)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--var: byte {} is not UTF-8", *invalid));
  }
  std::string value = text.substr(end + 1);
  auto json = parse_json(value, "--var");
  return std::pair(text.substr(0, end), json ? *std::move(json) : JsonValue(std::move(value)));
}

// The time for a template: the beginning of the given day in local time.
Result<std::tm> parse_date(const std::string& text) {
  const auto number = [&](std::size_t begin, std::size_t digits) {
    int value = 0;
    for (const char c : std::string_view(text).substr(begin, digits)) {
      if (c < '0' || c > '9') return -1;
      value = 10 * value + (c - '0');
    }
    return value;
  };
  const bool has_form = text.size() == 10 && text[4] == '-' && text[7] == '-';
  const int year = has_form ? number(0, 4) : -1;
  const int month = has_form ? number(5, 2) : -1;
  const int day = has_form ? number(8, 2) : -1;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (year < 1 || month < 1 || day < 1 || !date.ok()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--date {}: expected a day as YYYY-MM-DD, e.g. 2025-01-31", text));
  }
  const std::chrono::sys_days days = date;
  const std::chrono::sys_days new_year = date.year() / std::chrono::January / 1;
  std::tm time{};
  time.tm_year = year - 1900;
  time.tm_mon = month - 1;
  time.tm_mday = day;
  time.tm_wday = static_cast<int>(std::chrono::weekday(days).c_encoding());
  time.tm_yday = static_cast<int>((days - new_year).count());
  time.tm_isdst = -1;
  return time;
}

// The given day, or the time at which the conversation begins. All prompts of a conversation have
// the same time, so that a prompt differs from the last one only in its new messages.
Result<std::tm> time_of_templates(const ChatInput& input) {
  if (!input.date.empty()) return parse_date(input.date);
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local;
}

}  // namespace

Result<JsonValue::Array> read_messages(const std::string& path) {
  VOLTA_TRY(const std::string text, read_text_file(path, kMaxMessageBytes, interrupted));
  VOLTA_TRY(const JsonValue json, parse_json(skip_byte_order_mark(text), path));
  return messages_of(json, path);
}

void add_chat_input(Command& command, ChatInput& input) {
  command.add_option("--system", input.system, "the system message")->allow_empty()->only_once();
  Option* prompt = command
                       .add_option("-p,--prompt", input.prompts,
                                   "answer this message, then end; - for standard input")
                       ->allow_extra_args(false)
                       ->take_all()
                       ->allow_empty();
  command
      .add_option("-f,--file", input.prompt_file,
                  "answer the text of this file, then end; - for standard input")
      ->excludes(prompt);
  command.add_option("--messages", input.messages_file,
                     "answer this conversation, then end: a JSON array of messages; - for "
                     "standard input");
  // Standard input is the conversation.
  command.add_option("--tools", input.tools_file, "functions for the template: a JSON array")
      ->not_a_stream();
  command.add_option("--template", input.template_file, "a chat template instead of the model's")
      ->not_a_stream();
  command
      .add_option("--var", input.variables,
                  "NAME=VALUE for the template, e.g. enable_thinking=false; may be repeated")
      ->allow_extra_args(false)
      ->take_all();
  command.add_option("--date", input.date,
                     "YYYY-MM-DD: the day for templates that write today's date");
}

Result<std::optional<JsonValue>> read_tools(const ChatInput& input) {
  if (input.tools_file.empty()) return std::nullopt;
  VOLTA_TRY(JsonValue tools, read_json(input.tools_file));
  const auto is_object = [](const JsonValue& tool) { return tool.if_object() != nullptr; };
  const JsonValue::Array* array = tools.if_array();
  if (array != nullptr && std::ranges::all_of(*array, is_object)) return tools;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: expected an array of function schemas: "
                          R"([{{"type": "function", "function": {{"name": "f"}}}}])",
                          input.tools_file));
}

Result<ChatOptions> chat_options(const ChatInput& input, const JsonValue* tools,
                                 std::function<bool()> stop) {
  ChatOptions chat;
  VOLTA_TRY(chat.now, time_of_templates(input));
  chat.interrupted = std::move(stop);
  chat.tools = tools;
  for (const std::string& text : input.variables) {
    VOLTA_TRY(auto variable, parse_variable(text));
    chat.variables.insert_or_assign(std::move(variable.first), std::move(variable.second));
  }
  return chat;
}

Result<JsonValue::Array> first_messages(const ChatInput& input) {
  JsonValue::Array messages;
  if (input.system) messages.push_back(make_message("system", *input.system));
  if (!input.messages_file.empty()) {
    VOLTA_TRY(const std::string text, read_input(input.messages_file, kMaxMessageBytes));
    const std::string name = input_name(input.messages_file);
    VOLTA_TRY(const JsonValue json, parse_json(skip_byte_order_mark(text), name));
    VOLTA_TRY(auto more, messages_of(json, name));
    for (JsonValue& message : more) messages.push_back(std::move(message));
  }
  VOLTA_TRY(const auto question, read_question(input));
  if (question) messages.push_back(make_message("user", *question));
  for (const auto& [flag, text] :
       {std::pair("--system", &input.system), std::pair("--prompt", &question)}) {
    const auto invalid = *text ? find_invalid_utf8(**text) : std::nullopt;
    if (!invalid) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: byte {} is not UTF-8", flag, *invalid));
  }
  return messages;
}

}  // namespace volta::cli
