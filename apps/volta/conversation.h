// A conversation with a model: it takes messages and returns answers. The model's chat template
// makes the prompt of each turn, and only the part that differs from the last prompt is run. Knows
// no terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/generation_config.h"
#include "nn/generator.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace volta::cli {

/// {"role": ..., "content": ...}
JsonValue make_message(std::string_view role, std::string_view content);
/// The role of a message; empty when it has none.
std::string_view role_of(const JsonValue& message);

/// The tokens that end an answer according to the template: the token that it puts after an
/// assistant's message, if that is a special token.
std::vector<std::int32_t> end_of_turn(const ChatTemplate& chat_template, const ChatOptions& options,
                                      const Tokenizer& tokenizer);

/// The prompt of a conversation. It ends with the beginning of an answer. If the last message is an
/// assistant's, it ends with the text of that message, which the answer will continue.
/// kInvalidArgument when that message has no text or the template does not show it; and the errors
/// of ChatTemplate::render().
Result<QuotedText> make_prompt(const ChatTemplate& chat_template, JsonValue::Array messages,
                               ChatOptions options);

struct Answer {
  std::string text;
  std::int64_t tokens = 0;  ///< New tokens.
  std::int64_t prompt_tokens = 0;
  std::int64_t reused_tokens = 0;  ///< Tokens of the prompt that were not run again.
  std::int64_t dropped_turns = 0;  ///< Left out of the conversation to make room.
  StopReason reason = StopReason::kLength;
};

class Conversation {
 public:
  struct Settings {
    GenerationConfig limits{};  ///< max_new_tokens and max_length, per turn; default 512.
    SamplingParams sampling{};  ///< Turn i draws with seed + i.
    std::vector<std::int32_t> stop_tokens{};
    std::vector<std::string> stop_strings{};
    std::int64_t context = 0;    ///< Most tokens of prompt and answer together.
    ChatOptions chat{};          ///< Tools, and names for the template.
    bool allow_special = false;  ///< Special tokens in messages act as such.
  };
  /// Receives the answer in pieces of whole characters. Returning false stops the answer.
  using OnText = std::function<bool(std::string_view)>;

  Conversation(ChatTemplate chat_template, std::shared_ptr<const Tokenizer> tokenizer,
               Generator generator, Settings settings)
      : template_(std::move(chat_template)),
        tokenizer_(std::move(tokenizer)),
        generator_(std::move(generator)),
        settings_(std::move(settings)) {}

  const JsonValue::Array& messages() const { return messages_; }
  /// Sets the messages that the conversation begins with, and to which reset() returns.
  void begin(JsonValue::Array messages) { messages_ = beginning_ = std::move(messages); }
  void reset() { messages_ = beginning_; }

  /// Adds a message and the model's answer to it. An assistant's message is continued instead. When
  /// the context has no room for the prompt and an answer, the oldest turns are left out, but never
  /// the system message. After an error the conversation is unchanged. kInvalidArgument when the
  /// template refuses the conversation, or the message alone leaves no room for an answer.
  Result<Answer> ask(JsonValue message, const OnText& on_text);

 private:
  Result<std::vector<std::int32_t>> encode(const JsonValue::Array& messages) const;
  Result<std::vector<std::int32_t>> fit(JsonValue::Array& messages, std::int64_t& dropped) const;

  ChatTemplate template_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Generator generator_;
  Settings settings_;
  JsonValue::Array beginning_, messages_;
  std::uint64_t turn_ = 0;
};

}  // namespace volta::cli
