// Chat templates convert a conversation to the prompt format that a model was trained on. They come
// with the model (formats/model_source.h reads them) as programs in Jinja's template language, and
// run with the same results as in transformers. An unsupported part of the language is an error
// that names it; it never leads to a wrong prompt.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "text/quoted_text.h"

namespace [[gnu::visibility("default")]] volta {

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant", ...: the roles that the template has.
  std::string content;
};

struct ChatOptions {
  /// Ends the prompt with the beginning of an answer.
  bool add_generation_prompt = false;
  /// JSON schemas of functions (an array), and documents for the answer; null: none.
  const JsonValue* tools = nullptr;
  const JsonValue* documents = nullptr;
  /// Further variables for the template, e.g. "enable_thinking".
  std::map<std::string, JsonValue> variables{};
  /// The local time that the template sees (strftime_now); the current time when empty. Prompts
  /// that must be consistent with each other, as in one conversation, need the same time.
  std::optional<std::tm> now{};
  /// Called regularly; rendering stops when it returns true. Empty: never stops.
  std::function<bool()> interrupted{};
};

/// A model's template or templates. The one named "tool_use" is used when tools are given. Copies
/// share the parsed templates.
class ChatTemplate {
 public:
  /// Special tokens: their names in a template ("bos_token") and their texts.
  using SpecialTokens = std::map<std::string, std::string>;

  /// `name` is the template's name in messages. kInvalidFile, with the line, for an invalid
  /// template; kUnsupported for parts of the language that Volta does not have.
  static Result<ChatTemplate> parse(std::string_view source, std::string_view name,
                                    SpecialTokens special_tokens = {});
  /// One of a model's templates.
  struct Source {
    std::string_view name;   ///< "default" or "tool_use"; others are never rendered.
    std::string_view place;  ///< The source, for messages.
    std::string_view text;
  };
  /// If several have the same name, the first one is used. kInvalidFile without a "default".
  static Result<ChatTemplate> parse(std::span<const Source> sources,
                                    SpecialTokens special_tokens = {});

  /// The prompt of a conversation with special tokens as text, and its quoted parts. Quoted is all
  /// text that comes from the messages, tools, documents and variables, whatever the template does
  /// with it. Tokenize the prompt with Tokenizer::encode_quoted(), which adds no special tokens and
  /// finds none in quoted text, so that a message with the text "<|im_end|>" does not end a turn.
  /// (A template that marks turns with ordinary text, such as "[INST]", has no such protection,
  /// because such text is the same in the template and in a message.) Roles that are single words
  /// count as text of the template. kInvalidArgument when the conversation is empty or the template
  /// refuses it (with the template's message), kUnsupported, kInvalidFile (also when the template
  /// exceeds its budget of work), kInterrupted.
  Result<QuotedText> render_quoted(std::span<const ChatMessage> messages,
                                   const ChatOptions& options = {}) const;
  /// The same for messages as JSON: an array of objects with "role", "content" and any other
  /// members that the template has. Null members are removed, as in transformers, and so is an
  /// empty list of "tool_calls".
  Result<QuotedText> render_quoted(const JsonValue& messages,
                                   const ChatOptions& options = {}) const;
  /// The same as plain text. Tokenizer::encode() finds special tokens in messages, too, so use it
  /// only if all messages may contain them.
  Result<std::string> render(std::span<const ChatMessage> messages,
                             const ChatOptions& options = {}) const;
  Result<std::string> render(const JsonValue& messages, const ChatOptions& options = {}) const;

  /// The text of a special token by its name ("eos_token"), if it exists.
  std::optional<std::string> special_token(std::string_view name) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace volta
