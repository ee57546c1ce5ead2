// Chat templates: what turns a conversation into the prompt that a model was trained on. They come
// with the model (formats/model_text.h loads them), as programs in Jinja's template language, and
// are run as transformers runs them;
// what Volta does not know of the language is an error that names it, never a wrong prompt.
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
  std::string role;  ///< "system", "user", "assistant", ...: what the template knows.
  std::string content;
};

struct ChatOptions {
  /// Ends the prompt with what begins an answer.
  bool add_generation_prompt = false;
  /// JSON schemas of functions (an array), and texts to refer to; null: none.
  const JsonValue* tools = nullptr;
  const JsonValue* documents = nullptr;
  /// Further names for the template, e.g. "enable_thinking".
  std::map<std::string, JsonValue> variables{};
  /// Local time as the template sees it (strftime_now); now, when empty. Prompts that are to agree
  /// with each other, as those of one conversation, want the same time.
  std::optional<std::tm> now{};
  /// Asked now and then whether to stop; empty: never.
  std::function<bool()> interrupted{};
};

/// A model's template, or templates: one named "tool_use" is taken when tools are given. Copies
/// share what was parsed.
class ChatTemplate {
 public:
  /// The names that a template knows special tokens by ("bos_token"), and their texts.
  using SpecialTokens = std::map<std::string, std::string>;

  /// `name` is the template's in messages. kInvalidFile with the line for what is no template,
  /// kUnsupported for what Volta does not know.
  static Result<ChatTemplate> parse(std::string_view source, std::string_view name,
                                    SpecialTokens special_tokens = {});
  /// One of a model's templates.
  struct Source {
    std::string_view name;   ///< "default" or "tool_use"; others are never rendered.
    std::string_view place;  ///< Where it was read, for messages.
    std::string_view text;
  };
  /// Of several with one name the first counts. kInvalidFile without a "default".
  static Result<ChatTemplate> parse(std::span<const Source> sources,
                                    SpecialTokens special_tokens = {});

  /// The prompt of a conversation, special tokens written out, and which parts of it are quoted:
  /// words of the messages, tools, documents and variables, through whatever the template does to
  /// them. Tokenize it with Tokenizer::encode_quoted(), which adds no special tokens and finds none
  /// in what is quoted: a message that says "<|im_end|>" does not end a turn. (A template that
  /// marks turns with ordinary text, such as "[INST]" in some, gets no such protection: that text
  /// is the same whoever writes it.) Roles that are single words count as the template's.
  /// kInvalidArgument when the conversation is empty or the template refuses it (with its words),
  /// kUnsupported, kInvalidFile (also when it does not end within some seconds), kInterrupted.
  Result<QuotedText> render_quoted(std::span<const ChatMessage> messages,
                                   const ChatOptions& options = {}) const;
  /// The same for messages as JSON: an array of objects with "role", "content" and what else the
  /// template knows. Members that are null are left out, as transformers does, and so is an empty
  /// list of "tool_calls".
  Result<QuotedText> render_quoted(const JsonValue& messages,
                                   const ChatOptions& options = {}) const;
  /// The text alone. Tokenizer::encode() of it finds special tokens in messages, too: do that only
  /// where all messages may write them.
  Result<std::string> render(std::span<const ChatMessage> messages,
                             const ChatOptions& options = {}) const;
  Result<std::string> render(const JsonValue& messages, const ChatOptions& options = {}) const;

  /// The text of a special token by its name ("eos_token"), if there is one.
  std::optional<std::string> special_token(std::string_view name) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace volta
