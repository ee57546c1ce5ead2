// A conversation with a model: messages in, an answer out, the prompt of each turn made by the
// model's chat template and run from where it differs from the last one. Knows no terminal.
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

/// The tokens that end an answer by the template's word: the special token, if it is one, that it
/// puts behind an assistant's message.
std::vector<std::int32_t> end_of_turn(const ChatTemplate& chat_template, const ChatOptions& options,
                                      const Tokenizer& tokenizer);

/// The prompt of a conversation: its end is what begins an answer, or, where the last message is an
/// assistant's, that message's text, which the answer will continue. kInvalidArgument when that is
/// no text, or the template does not show it; and as ChatTemplate::render().
Result<QuotedText> make_prompt(const ChatTemplate& chat_template, JsonValue::Array messages,
                               ChatOptions options);

struct Answer {
  std::string text;
  std::int64_t tokens = 0;  ///< New ones.
  std::int64_t prompt_tokens = 0;
  std::int64_t reused_tokens = 0;  ///< Of the prompt: not run again.
  std::int64_t dropped_turns = 0;  ///< Left out of the conversation to make room.
  StopReason reason = StopReason::kLength;
};

class Conversation {
 public:
  struct Settings {
    GenerationConfig limits{};  ///< max_new_tokens and max_length: new tokens a turn, else 512.
    SamplingParams sampling{};  ///< Turn i draws with seed + i.
    std::vector<std::int32_t> stop_tokens{};
    std::vector<std::string> stop_strings{};
    std::int64_t context = 0;    ///< Tokens that prompt and answer have together.
    ChatOptions chat{};          ///< Tools, and names for the template.
    bool allow_special = false;  ///< Messages may write special tokens.
  };
  /// Piece by piece, in whole characters; return false to stop the answer.
  using OnText = std::function<bool(std::string_view)>;

  Conversation(ChatTemplate chat_template, std::shared_ptr<const Tokenizer> tokenizer,
               Generator generator, Settings settings)
      : template_(std::move(chat_template)),
        tokenizer_(std::move(tokenizer)),
        generator_(std::move(generator)),
        settings_(std::move(settings)) {}

  const JsonValue::Array& messages() const { return messages_; }
  /// What the conversation begins with, and returns to with reset().
  void begin(JsonValue::Array messages) { messages_ = beginning_ = std::move(messages); }
  void reset() { messages_ = beginning_; }

  /// Adds a message and the model's answer to it; an assistant's message is continued. The oldest
  /// turns are left out, never the system message, when the context has no room for the prompt and
  /// an answer. After an error the conversation is what it was. kInvalidArgument when the template
  /// refuses the conversation, or the message alone leaves no room.
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
