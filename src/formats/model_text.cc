#include "formats/model_text.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "formats/gguf/gguf_file.h"
#include "formats/gguf/gguf_tokenizer.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxTokenizerBytes = std::int64_t{256} << 20;
constexpr std::int64_t kMaxConfigBytes = 16 << 20;
constexpr std::int64_t kMaxTemplateBytes = 1 << 20;
constexpr std::array<std::string_view, 7> kSpecialTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
// A token is a string, or an object that has the string as its content.
Status add_special_tokens(const JsonRef& config, ChatTemplate::SpecialTokens& tokens) {
  for (const std::string_view name : kSpecialTokens) {
    VOLTA_TRY(const auto token, config.optional_member(name));
    if (!token) continue;
    std::string text;
    if (token->node().if_object() != nullptr) {
      VOLTA_TRY(text, token->get_string("content"));
    } else {
      VOLTA_TRY(text, token->as_string());
    }
    tokens.emplace(name, std::move(text));
  }
  return {};
}

// A JSON document of a model folder, if it exists; for a .gguf file, the equivalent from its
// metadata.
struct Document {
  JsonValue json;
  std::string path;
  JsonRef ref() const { return JsonRef(json, path); }
};
Result<std::optional<std::string>> read_gguf_document(const std::string& path,
                                                      std::string_view name) {
  if (name != "tokenizer_config.json") return std::nullopt;
  VOLTA_TRY(const GgufFile file, GgufFile::open(path));
  if (file.find("tokenizer.ggml.tokens") == nullptr) return std::nullopt;
  VOLTA_TRY(std::string text, gguf_tokenizer_config(file));
  VOLTA_TRY(file.check_unchanged());
  return text;
}
Result<std::optional<Document>> read_document(const std::string& directory, std::string_view name) {
  const bool gguf = is_gguf_path(directory);
  Document document{.json = {}, .path = gguf ? directory : join_path(directory, name)};
  VOLTA_TRY(const auto text, gguf ? read_gguf_document(directory, name)
                                  : read_text_file_if_there(document.path, kMaxConfigBytes));
  if (!text) return std::nullopt;
  VOLTA_TRY(document.json, parse_json(*text, document.path));
  return document;
}

Result<ChatTemplate::SpecialTokens> load_special_tokens(const std::string& directory) {
  ChatTemplate::SpecialTokens tokens;
  for (const std::string_view name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    VOLTA_TRY(const auto document, read_document(directory, name));
    if (document) VOLTA_TRY(add_special_tokens(document->ref(), tokens));
  }
  return tokens;
}

// Parses the templates of a document: one text, or a list of named templates.
Result<ChatTemplate> parse_member(const JsonRef& member, ChatTemplate::SpecialTokens tokens) {
  if (member.node().if_array() == nullptr) {
    VOLTA_TRY(const std::string source, member.as_string());
    return ChatTemplate::parse(source, member.path(), std::move(tokens));
  }
  struct Named {
    std::string name, place, text;
  };
  std::vector<Named> templates;
  VOLTA_TRY(const auto list, member.elements());
  for (const JsonRef& item : list) {
    VOLTA_TRY(std::string name, item.get_string("name"));
    VOLTA_TRY(std::string text, item.get_string("template"));
    templates.push_back({std::move(name), std::string(item.path()), std::move(text)});
  }
  std::vector<ChatTemplate::Source> sources;
  for (const Named& named : templates) sources.push_back({named.name, named.place, named.text});
  auto parsed = ChatTemplate::parse(sources, std::move(tokens));
  if (parsed) return parsed;
  return std::unexpected(std::move(parsed).error().with_context(member.path()));
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& path,
                                                        Interruption interrupted) {
  if (is_gguf_path(path)) {
    VOLTA_TRY(const GgufFile gguf, GgufFile::open(path));
    auto tokenizer = gguf_tokenizer(gguf, std::move(interrupted));
    VOLTA_TRY(gguf.check_unchanged());
    return tokenizer;
  }
  const std::string directory = is_directory(path) ? path : parent_path(path);
  const std::string file = is_directory(path) ? join_path(path, "tokenizer.json") : path;
  VOLTA_TRY(const std::string text, read_text_file(file, kMaxTokenizerBytes));
  auto config = read_text_file(join_path(directory, "tokenizer_config.json"), kMaxConfigBytes);
  if (!config && config.error().code() != ErrorCode::kNotFound) {
    return std::unexpected(std::move(config).error());
  }
  return parse_tokenizer(text, file, config.value_or(""), std::move(interrupted));
}

Result<std::shared_ptr<const Tokenizer>> make_tokenizer(std::string_view kind,
                                                        std::string_view text,
                                                        Interruption interrupted) {
  if (kind == "byte") return make_byte_tokenizer();
  if (kind == "char") return make_char_tokenizer(text, std::move(interrupted));
  if (is_tokenizer_kind(kind)) return load_tokenizer(std::string(kind), std::move(interrupted));
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("unknown tokenizer '{}'; use byte or char, or name a tokenizer.json", kind));
}

Result<ChatTemplate> load_chat_template_file(const std::string& path, const std::string& model) {
  VOLTA_TRY(const std::string source, read_text_file(path, kMaxTemplateBytes));
  VOLTA_TRY(auto tokens, load_special_tokens(model));
  return ChatTemplate::parse(source, path, std::move(tokens));
}

Result<ChatTemplate> load_chat_template(const std::string& model) {
  const std::string file = join_path(model, "chat_template.jinja");
  if (path_exists(file)) return load_chat_template_file(file, model);
  for (const std::string_view name : {"tokenizer_config.json", "chat_template.json"}) {
    VOLTA_TRY(const auto document, read_document(model, name));
    if (!document) continue;
    VOLTA_TRY(const auto member, document->ref().optional_member("chat_template"));
    if (!member) continue;
    VOLTA_TRY(auto tokens, load_special_tokens(model));
    return parse_member(*member, std::move(tokens));
  }
  if (is_gguf_path(model)) {
    return fail(ErrorCode::kNotFound,
                fmt::format("the file '{}' has no chat template (tokenizer.chat_template)", model));
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("the model folder '{}' has no chat template (chat_template in "
                          "tokenizer_config.json, or chat_template.jinja)",
                          model));
}

}  // namespace volta
