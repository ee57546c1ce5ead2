#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"

namespace volta {

// Templates by name. A template without a name has the name "default".
struct ChatTemplate::Parsed {
  struct NamedTemplate {
    std::string name;
    std::string place;  // For messages.
    jinja::Ast ast;
  };
  std::vector<NamedTemplate> templates;
  SpecialTokens special_tokens;

  const NamedTemplate* find(std::string_view name) const {
    const auto found = std::ranges::find(templates, name, &NamedTemplate::name);
    return found == templates.end() ? nullptr : &*found;
  }
  Status add(std::string name, std::string place, std::string_view source) {
    auto ast = jinja::parse(source);
    if (!ast) return std::unexpected(std::move(ast).error().with_context(place));
    templates.push_back({std::move(name), std::move(place), *std::move(ast)});
    return {};
  }
  Result<QuotedText> render(const jinja::Environment& environment, bool with_tools) const {
    const NamedTemplate* tool_use = with_tools ? find("tool_use") : nullptr;
    const NamedTemplate& chosen = tool_use == nullptr ? *find("default") : *tool_use;
    auto text = jinja::render(chosen.ast, environment);
    if (text || text.error().code() == ErrorCode::kInvalidArgument) return text;
    return std::unexpected(std::move(text).error().with_context(chosen.place));
  }
};

namespace {

using jinja::Value;
using Members = std::vector<std::pair<Value, Value>>;

// The names for the reasoning of a message. transformers provides it under the first two names.
constexpr std::array<std::string_view, 3> kReasoning = {"reasoning_content", "thinking",
                                                        "reasoning"};

// A role counts as text of the template, because some templates make a special token of it ('<|' +
// role + '|>'). A role with other characters than those of a word is quoted like all text.
Value role_value(std::string_view role) {
  const auto is_of_a_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return std::ranges::all_of(role, is_of_a_word) ? Value::text(role) : Value::quoted(role);
}

Value text_list(std::span<const ChatMessage> messages) {
  auto list = std::make_shared<jinja::Sequence>();
  list->depth = 2;
  for (const ChatMessage& message : messages) {
    auto dict = std::make_shared<jinja::Dict>();
    dict->members.emplace_back(Value::text("role"), role_value(message.role));
    dict->members.emplace_back(Value::text("content"), Value::quoted(message.content));
    list->items.emplace_back(std::shared_ptr<const jinja::Dict>(std::move(dict)));
  }
  return Value(std::move(list));
}

void set_member(Members& members, std::string_view name, Value value, bool first) {
  for (auto& [key, known] : members) {
    if (*key.if_string() != name) continue;
    known = std::move(value);
    return;
  }
  members.emplace(first ? members.begin() : members.end(), Value::text(name), std::move(value));
}

// Templates test whether a member exists, and take an empty list of calls for a call.
bool counts_as_absent(std::string_view key, const JsonValue& value) {
  const JsonValue::Array* list = value.if_array();
  return value.is_null() || (key == "tool_calls" && list != nullptr && list->empty());
}

// The keys of messages, which nearly all have the same few.
class Keys {
 public:
  Value value(const std::string& key) {
    const auto known = std::ranges::find_if(
        known_, [&key](const Value& value) { return *value.if_string() == key; });
    if (known != known_.end()) return *known;
    Value added = Value::quoted(key);
    if (known_.size() < kMost) known_.push_back(added);
    return added;
  }

 private:
  static constexpr std::size_t kMost = 8;
  std::vector<Value> known_;
};

// Converts one message, without absent members and with its reasoning under both names.
Result<Value> message_value(const JsonValue& message, Keys& keys) {
  Members members;
  members.reserve(message.if_object()->size());
  const JsonValue* reasoning = nullptr;
  for (const auto& [key, value] : *message.if_object()) {
    if (counts_as_absent(key, value)) continue;
    const std::string* role = key == "role" ? value.if_string() : nullptr;
    auto converted = role != nullptr ? Result<Value>(role_value(*role)) : jinja::from_json(value);
    if (!converted) return converted;
    members.emplace_back(keys.value(key), *std::move(converted));
  }
  for (const std::string_view name : kReasoning) {
    const JsonValue* found = message.find(name);
    if (reasoning == nullptr && found != nullptr && !found->is_null()) reasoning = found;
  }
  if (reasoning != nullptr) {
    VOLTA_TRY(const Value thoughts, jinja::from_json(*reasoning));
    const bool thinks = message.find("thinking") != nullptr && !message.find("thinking")->is_null();
    if (!thinks) set_member(members, "thinking", thoughts, true);
    set_member(members, "reasoning_content", thoughts, false);
  }
  jinja::Budget budget;
  return jinja::make_dict(budget, std::move(members));
}

Result<Value> message_list(const JsonValue& messages) {
  const JsonValue::Array* array = messages.if_array();
  const auto is_object = [](const JsonValue& item) { return item.if_object() != nullptr; };
  if (array == nullptr || !std::ranges::all_of(*array, is_object)) {
    return fail(ErrorCode::kInvalidArgument,
                R"(messages are a JSON array of objects: [{"role": "user", "content": "Hi"}])");
  }
  Keys keys;
  std::vector<Value> items;
  items.reserve(array->size());
  for (const JsonValue& message : *array) {
    VOLTA_TRY(Value value, message_value(message, keys));
    items.push_back(std::move(value));
  }
  jinja::Budget budget;
  return jinja::make_sequence(budget, jinja::SequenceKind::kList, std::move(items));
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local;
}

Result<Value> json_or_none(const JsonValue* json) {
  return json == nullptr ? Value(jinja::None{}) : jinja::from_json(*json);
}

Result<jinja::Environment> environment(Value messages, const ChatOptions& options,
                                       const ChatTemplate::SpecialTokens& special_tokens) {
  jinja::Environment result{.now = options.now ? *options.now : local_time()};
  result.interrupted = options.interrupted;
  auto& variables = result.variables;
  if (messages.if_sequence()->items.empty()) {
    return fail(ErrorCode::kInvalidArgument, "a conversation has one message at least");
  }
  variables.emplace_back("messages", std::move(messages));
  VOLTA_TRY(Value tools, json_or_none(options.tools));
  variables.emplace_back("tools", std::move(tools));
  VOLTA_TRY(Value documents, json_or_none(options.documents));
  variables.emplace_back("documents", std::move(documents));
  variables.emplace_back("add_generation_prompt", Value(options.add_generation_prompt));
  for (const auto& [name, json] : options.variables) {
    VOLTA_TRY(Value value, jinja::from_json(json));
    variables.emplace_back(name, std::move(value));
  }
  for (const auto& [name, text] : special_tokens) variables.emplace_back(name, Value::text(text));
  return result;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string_view name,
                                         SpecialTokens special_tokens) {
  const std::array sources = {Source{.name = "default", .place = name, .text = source}};
  return parse(sources, std::move(special_tokens));
}

Result<ChatTemplate> ChatTemplate::parse(std::span<const Source> sources,
                                         SpecialTokens special_tokens) {
  auto parsed = std::make_shared<Parsed>();
  for (const Source& source : sources) {
    const bool used = source.name == "default" || source.name == "tool_use";
    if (!used || parsed->find(source.name) != nullptr) continue;
    VOLTA_TRY(parsed->add(std::string(source.name), std::string(source.place), source.text));
  }
  if (parsed->find("default") == nullptr) {
    return fail(ErrorCode::kInvalidFile, "none of the templates is named 'default'");
  }
  parsed->special_tokens = std::move(special_tokens);
  return ChatTemplate(std::move(parsed));
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         const ChatOptions& options) const {
  VOLTA_TRY(QuotedText prompt, render_quoted(messages, options));
  return std::move(prompt.text);
}

Result<std::string> ChatTemplate::render(const JsonValue& messages,
                                         const ChatOptions& options) const {
  VOLTA_TRY(QuotedText prompt, render_quoted(messages, options));
  return std::move(prompt.text);
}

Result<QuotedText> ChatTemplate::render_quoted(std::span<const ChatMessage> messages,
                                               const ChatOptions& options) const {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    for (const std::string& text : {messages[i].role, messages[i].content}) {
      const auto invalid = find_invalid_utf8(text);
      if (!invalid) continue;
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("message {}: byte {} is not UTF-8", i, *invalid));
    }
  }
  VOLTA_TRY(const auto context, environment(text_list(messages), options, parsed_->special_tokens));
  return parsed_->render(context, options.tools != nullptr);
}

Result<QuotedText> ChatTemplate::render_quoted(const JsonValue& messages,
                                               const ChatOptions& options) const {
  VOLTA_TRY(Value list, message_list(messages));
  VOLTA_TRY(const auto context, environment(std::move(list), options, parsed_->special_tokens));
  return parsed_->render(context, options.tools != nullptr);
}

std::optional<std::string> ChatTemplate::special_token(std::string_view name) const {
  const auto found = parsed_->special_tokens.find(std::string(name));
  if (found == parsed_->special_tokens.end()) return std::nullopt;
  return found->second;
}

}  // namespace volta
