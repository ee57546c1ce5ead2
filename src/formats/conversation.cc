#include "formats/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "formats/json_value.h"
#include "text/chat_prompt.h"
#include "text/completion_stream.h"
#include "text/quoted_text.h"

namespace volta {
namespace {

constexpr std::int64_t kDefaultTokens = 512;

// The longest prompt that leaves room for an answer. The room is the requested number of tokens,
// but at most a quarter of the context.
std::int64_t prompt_room(const GenerationConfig& limits, std::int64_t context) {
  if (!limits.max_new_tokens) context = std::min(context, limits.max_length.value_or(context));
  const std::int64_t wanted = limits.new_tokens(0, kDefaultTokens);
  return context - std::max<std::int64_t>(1, std::min(wanted, context / 4));
}

// The range [begin, end) of the oldest turn: from the first message that is not a system message to
// the next user message. {0, 0} when there is only one turn.
std::pair<std::size_t, std::size_t> oldest_turn(const JsonValue::Array& messages) {
  const auto is_user = [](const JsonValue& message) { return message_role(message) == "user"; };
  auto begin = messages.begin();
  while (begin != messages.end() && message_role(*begin) == "system") ++begin;
  const auto first = begin == messages.end() ? begin : std::next(begin);
  const auto end = std::find_if(first, messages.end(), is_user);
  if (end == messages.end()) return {0, 0};
  return {static_cast<std::size_t>(begin - messages.begin()),
          static_cast<std::size_t>(end - messages.begin())};
}

}  // namespace

std::string messages_json(const JsonValue::Array& messages) {
  JsonWriter json(1);
  json.begin_array();
  for (const JsonValue& message : messages) write_json_value(json, message);
  json.end_array();
  return std::move(json).take() + "\n";
}

Conversation::Conversation(ChatTemplate chat_template, std::shared_ptr<const Tokenizer> tokenizer,
                           Generator generator, Settings settings)
    : template_(std::move(chat_template)),
      tokenizer_(std::move(tokenizer)),
      generator_(std::move(generator)),
      settings_(std::move(settings)) {
  for (const std::int32_t id : end_of_turn(template_, settings_.chat, *tokenizer_)) {
    settings_.stop_tokens.push_back(id);
  }
}

Result<std::vector<std::int32_t>> Conversation::encode(const JsonValue::Array& messages) const {
  VOLTA_TRY(const QuotedText prompt, make_chat_prompt(template_, messages, settings_.chat));
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

Result<Conversation::Answer> Conversation::ask(JsonValue message, const OnText& on_text) {
  JsonValue::Array messages = messages_;
  messages.push_back(std::move(message));
  Answer answer;
  VOLTA_TRY(std::vector<std::int32_t> prompt, fit(messages, answer.dropped_turns));
  if (prompt.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the chat template makes an empty prompt of this");
  }
  if (settings_.check_ids) VOLTA_TRY(settings_.check_ids(prompt));
  answer.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  const std::int64_t tokens = settings_.limits.new_tokens(answer.prompt_tokens, kDefaultTokens);
  const bool continues = message_role(messages.back()) == "assistant";
  CompletionStream stream(tokenizer_, prompt, settings_.stop_strings,
                          continues ? CompletionText::kContinuation : CompletionText::kAnswer);
  std::string_view piece;
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
  const auto show = [&](std::string_view text) { return !on_text || on_text(text); };
  bool wanted = true;
  GenerationCallbacks callbacks;
  callbacks.token = [&](const TokenEvent&) {
    // Stop tokens are not pushed and have no piece.
    wanted = show(std::exchange(piece, {}));
    return wanted;
  };
  callbacks.prompt = [&](const PromptEvent&) {
    wanted = show("");
    return wanted;
  };
  const std::vector<GenerationRequest> requests = {std::move(request)};
  VOLTA_TRY(const auto results, generator_.generate(requests, callbacks));
  const std::string_view rest = stream.finish();
  if (wanted) show(rest);
  answer.text = stream.text();
  answer.reason = results.front().reason;
  answer.tokens = static_cast<std::int64_t>(results.front().tokens.size());
  answer.reused_tokens = generator_.timing().reused_tokens;
  if (answer.reason != StopReason::kCancelled || answer.tokens > 0) ++turn_;
  const bool stopped = answer.reason == StopReason::kCancelled && answer.tokens == 0;
  if (stopped || (answer.text.empty() && !continues)) {
    answer.dropped_turns = 0;  // The conversation is as it was.
    return answer;
  }
  if (continues) {
    const std::string* begun = message_text(messages.back());
    messages.back() = with_text(messages.back(), (begun ? *begun : "") + answer.text);
  } else {
    messages.push_back(make_message("assistant", answer.text));
  }
  messages_ = std::move(messages);
  return answer;
}

}  // namespace volta
