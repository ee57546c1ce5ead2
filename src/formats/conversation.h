// A conversation with a model: it takes messages and returns answers. The model's chat template
// makes the prompt of each turn, and only the part that differs from the last prompt is run. Knows
// no terminal. It lies here because it joins a model (nn), its text (text) and its settings
// (formats/generation_config.h), and this is the lowest folder that may include all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/generation_config.h"
#include "nn/generator.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace [[gnu::visibility("default")]] volta {

/// The messages as a JSON array, one member per line.
std::string messages_json(const JsonValue::Array& messages);

class Conversation {
 public:
  struct Settings {
    GenerationConfig limits{};  ///< max_new_tokens and max_length, per turn; default 512.
    SamplingParams sampling{};  ///< Turn i draws with seed + i.
    /// An answer ends at any of these tokens, and at the template's end_of_turn().
    std::vector<std::int32_t> stop_tokens{};
    std::vector<std::string> stop_strings{};
    std::int64_t context = 0;    ///< Most tokens of prompt and answer together.
    ChatOptions chat{};          ///< Tools, and names for the template.
    bool allow_special = false;  ///< Special tokens in messages act as such.
    /// Checks the ids of every prompt before it runs (ModelSource::check_own_ids()); may be empty.
    std::function<Status(std::span<const std::int32_t>)> check_ids{};
  };
  struct Answer {
    std::string text;
    std::int64_t tokens = 0;  ///< New tokens.
    std::int64_t prompt_tokens = 0;
    std::int64_t reused_tokens = 0;  ///< Tokens of the prompt that were not run again.
    std::int64_t dropped_turns = 0;  ///< Left out of the conversation to make room.
    StopReason reason = StopReason::kLength;
  };
  /// Receives the answer in pieces of whole characters, and empty pieces while the prompt is read.
  /// Returning false stops the answer.
  using OnText = std::function<bool(std::string_view)>;

  /// `generator` runs the model of the template and the tokenizer. Make it with
  /// GeneratorOptions::reuse_prefix, so that a turn runs only what is new in its prompt.
  Conversation(ChatTemplate chat_template, std::shared_ptr<const Tokenizer> tokenizer,
               Generator generator, Settings settings);

  const JsonValue::Array& messages() const { return messages_; }
  /// Sets the messages that the conversation begins with, and to which reset() returns.
  void begin(JsonValue::Array messages) { messages_ = beginning_ = std::move(messages); }
  void reset() { messages_ = beginning_; }
  /// Goes on from these messages; reset() still returns to those of begin().
  void go_on_from(JsonValue::Array messages) { messages_ = std::move(messages); }

  /// Adds a message (make_message()) and the model's answer to it. An assistant's message is
  /// continued instead. When the context has no room for the prompt and an answer, the oldest turns
  /// are left out, but never the system message. An error leaves the conversation unchanged. So
  /// does a new answer without any text, because check_messages() would refuse the empty message.
  /// Each answer is a turn, unless it was stopped before its first token; the next turn is sampled
  /// with another seed. kInvalidArgument when the template refuses the conversation, or the message
  /// alone leaves no room for an answer; the errors of make_chat_prompt() and
  /// Generator::generate().
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

}  // namespace volta
