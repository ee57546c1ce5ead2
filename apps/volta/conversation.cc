#include "conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/completion_stream.h"

namespace volta::cli {
namespace {

constexpr std::int64_t kDefaultTokens = 512;

// The longest prompt that leaves room for an answer. The room is the requested number of tokens,
// but at most a quarter of the context.
std::int64_t prompt_room(const GenerationConfig& limits, std::int64_t context) {
  if (!limits.max_new_tokens) context = std::min(context, limits.max_length.value_or(context));
  const std::int64_t wanted = limits.new_tokens(0, kDefaultTokens);
  return context - std::max<std::int64_t>(1, std::min(wanted, context / 4));
}

// A copy of a message with another text.
JsonValue with_content(const JsonValue& message, std::string text) {
  JsonValue::Object members;
  if (const JsonValue::Object* old = message.if_object()) members = *old;
  for (auto& [key, value] : members) {
    if (key == "content") value = JsonValue(std::move(text));
  }
  return JsonValue(std::move(members));
}

const std::string* content_of(const JsonValue& message) {
  const JsonValue* content = message.find("content");
  return content == nullptr ? nullptr : content->if_string();
}

// The range [begin, end) of the oldest turn: from the first message that is not a system message to
// the next user message. {0, 0} when there is only one turn.
std::pair<std::size_t, std::size_t> oldest_turn(const JsonValue::Array& messages) {
  const auto is_user = [](const JsonValue& message) { return role_of(message) == "user"; };
  auto begin = messages.begin();
  while (begin != messages.end() && role_of(*begin) == "system") ++begin;
  const auto first = begin == messages.end() ? begin : std::next(begin);
  const auto end = std::find_if(first, messages.end(), is_user);
  if (end == messages.end()) return {0, 0};
  return {static_cast<std::size_t>(begin - messages.begin()),
          static_cast<std::size_t>(end - messages.begin())};
}

}  // namespace

JsonValue make_message(std::string_view role, std::string_view content) {
  JsonValue::Object members;
  members.emplace_back("role", JsonValue(std::string(role)));
  members.emplace_back("content", JsonValue(std::string(content)));
  return JsonValue(std::move(members));
}

std::string_view role_of(const JsonValue& message) {
  const JsonValue* role = message.find("role");
  const std::string* text = role == nullptr ? nullptr : role->if_string();
  return text == nullptr ? std::string_view() : *text;
}

Result<QuotedText> make_prompt(const ChatTemplate& chat_template, JsonValue::Array messages,
                               ChatOptions options) {
  options.add_generation_prompt = messages.empty() || role_of(messages.back()) != "assistant";
  if (options.add_generation_prompt) {
    return chat_template.render_quoted(JsonValue(std::move(messages)), options);
  }
  // A mark behind the text shows where it ends in the prompt.
  constexpr std::string_view kMark = "volta-continues-here";
  const std::string* text = content_of(messages.back());
  if (text == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "the last message is an assistant's without text: there is nothing to continue; "
                "end the conversation with a user's message or a tool's result");
  }
  messages.back() = with_content(messages.back(), *text + std::string(kMark));
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

Result<std::vector<std::int32_t>> Conversation::encode(const JsonValue::Array& messages) const {
  VOLTA_TRY(const QuotedText prompt, make_prompt(template_, messages, settings_.chat));
  return settings_.allow_special ? tokenizer_->encode(prompt.text)
                                 : tokenizer_->encode_quoted(prompt);
}

// The prompt, after leaving out as many of the oldest turns as necessary.
Result<std::vector<std::int32_t>> Conversation::fit(JsonValue::Array& messages,
                                                    std::int64_t& dropped) const {
  const std::int64_t room = prompt_room(settings_.limits, settings_.context);
  VOLTA_TRY(auto ids, encode(messages));
  while (static_cast<std::int64_t>(ids.size()) > room) {
    const auto [begin, end] = oldest_turn(messages);
    if (begin == end) break;
    messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(begin),
                   messages.begin() + static_cast<std::ptrdiff_t>(end));
    ++dropped;
    VOLTA_TRY(ids, encode(messages));
  }
  if (static_cast<std::int64_t>(ids.size()) < settings_.context) return ids;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the message is too long: the prompt has {} tokens, and the context {} "
                          "for it and the answer",
                          ids.size(), settings_.context));
}

Result<Answer> Conversation::ask(JsonValue message, const OnText& on_text) {
  JsonValue::Array messages = messages_;
  messages.push_back(std::move(message));
  Answer answer;
  VOLTA_TRY(std::vector<std::int32_t> prompt, fit(messages, answer.dropped_turns));
  if (prompt.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the chat template makes an empty prompt of this");
  }
  answer.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  const std::int64_t tokens = settings_.limits.new_tokens(answer.prompt_tokens, kDefaultTokens);
  const bool continues = role_of(messages.back()) == "assistant";
  CompletionStream stream(tokenizer_, prompt, settings_.stop_strings,
                          continues ? CompletionText::kContinuation : CompletionText::kAnswer);
  std::string piece;
  GenerationRequest request{.prompt = std::move(prompt),
                            .max_new_tokens = tokens,
                            .sampling = settings_.sampling,
                            .stop_tokens = settings_.stop_tokens,
                            .context = settings_.context};
  request.sampling.seed += turn_;
  request.stop_when = [&](std::int32_t token) {
    piece = stream.push(token);
    return stream.stopped();
  };
  bool wanted = true;
  GenerationCallbacks callbacks;
  callbacks.token = [&](const TokenEvent&) {
    // Stop tokens are not pushed and have no piece.
    const std::string text = std::exchange(piece, {});
    answer.text += text;
    wanted = on_text(text);
    return wanted;
  };
  callbacks.prompt = [&](const PromptEvent&) {
    wanted = on_text("");
    return wanted;
  };
  const std::vector<GenerationRequest> requests = {std::move(request)};
  VOLTA_TRY(const auto results, generator_.generate(requests, callbacks));
  const std::string rest = stream.finish();
  answer.text += rest;
  if (wanted) on_text(rest);
  answer.reason = results.front().reason;
  answer.tokens = static_cast<std::int64_t>(results.front().tokens.size());
  answer.reused_tokens = generator_.timing().reused_tokens;
  if (answer.reason == StopReason::kCancelled && answer.tokens == 0) return answer;
  if (continues) {
    const std::string* begun = content_of(messages.back());
    messages.back() = with_content(messages.back(), (begun ? *begun : "") + answer.text);
  } else {
    messages.push_back(make_message("assistant", answer.text));
  }
  messages_ = std::move(messages);
  ++turn_;
  return answer;
}

}  // namespace volta::cli
