// The text-related parts of a model folder or a .gguf file: its tokenizer and its chat template.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace [[gnu::visibility("default")]] volta {

/// Loads a tokenizer.json, or the tokenizer of a folder or a .gguf file. kNotFound when there is
/// none, and the errors of parse_tokenizer().
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& path,
                                                        Interruption interrupted = {});

/// Makes a tokenizer: "byte" or "char" for a text, or loads the tokenizer.json at the path `kind`.
/// kInvalidArgument for another kind.
Result<std::shared_ptr<const Tokenizer>> make_tokenizer(std::string_view kind,
                                                        std::string_view text,
                                                        Interruption interrupted = {});

/// Loads the chat template of a model folder: chat_template.jinja, else that of
/// tokenizer_config.json, else chat_template.json. Special tokens come from tokenizer_config.json.
/// A .gguf file has both in its metadata. kNotFound when there is no template, and the errors of
/// ChatTemplate::parse().
Result<ChatTemplate> load_chat_template(const std::string& model);
/// Loads a template from a separate file, with the special tokens of a model.
Result<ChatTemplate> load_chat_template_file(const std::string& path, const std::string& model);

}  // namespace volta
