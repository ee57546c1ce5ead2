#include "formats/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "formats/gguf/gguf_file.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_tokenizer.h"
#include "formats/hub_cache.h"
#include "formats/model_config.h"
#include "formats/weight_files.h"

namespace volta {

// A JSON document of the model: a file of a folder, or its equivalent in a .gguf file's metadata.
struct ModelSource::Document {
  JsonValue json;
  std::string path;
  JsonRef ref() const { return JsonRef(json, path); }
};

namespace {

constexpr std::int64_t kMaxTemplateBytes = 1 << 20;
constexpr std::array<std::string_view, 7> kSpecialTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

// The document that a conversion of the file would write under this name. Empty when it would write
// none.
Result<std::string> gguf_document(const GgufFile& file, std::string_view name) {
  if (name == "generation_config.json") return gguf_generation_config(file);
  const bool has_tokens = file.find("tokenizer.ggml.tokens") != nullptr;
  if (name == "tokenizer_config.json" && has_tokens) return gguf_tokenizer_config(file);
  return std::string();
}

// Adds the special tokens of a document. A token is a string, or an object that has the string as
// its content.
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

// Parses the templates of a document: one text, or a list of named templates.
Result<ChatTemplate> parse_templates(const JsonRef& member, ChatTemplate::SpecialTokens tokens) {
  if (member.node().if_array() == nullptr) {
    VOLTA_TRY(const std::string source, member.as_string());
    return ChatTemplate::parse(source, member.path(), std::move(tokens));
  }
  struct TemplateText {
    std::string name, place, text;
  };
  std::vector<TemplateText> templates;
  VOLTA_TRY(const auto list, member.elements());
  for (const JsonRef& item : list) {
    VOLTA_TRY(std::string name, item.get_string("name"));
    VOLTA_TRY(std::string text, item.get_string("template"));
    templates.push_back({std::move(name), std::string(item.path()), std::move(text)});
  }
  std::vector<ChatTemplate::Source> sources;
  for (const TemplateText& named : templates)
    sources.push_back({named.name, named.place, named.text});
  auto parsed = ChatTemplate::parse(sources, std::move(tokens));
  if (parsed) return parsed;
  return std::unexpected(std::move(parsed).error().with_context(member.path()));
}

Status check_end_tokens(std::span<const std::int32_t> ids, std::int64_t vocab_size,
                        std::string_view path) {
  for (const std::int32_t id : ids) {
    if (id < vocab_size) continue;
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: eos_token_id is {}; the vocabulary has ids 0 to {}", path, id,
                            vocab_size - 1));
  }
  return {};
}

}  // namespace

Result<ModelSource> ModelSource::open(const std::string& path) {
  ModelSource source;
  source.path_ = path;
  if (is_gguf_path(path)) {
    VOLTA_TRY(GgufFile file, GgufFile::open(path));
    source.gguf_ = std::make_shared<const GgufFile>(std::move(file));
  } else {
    source.config_json_ = read_text_file(join_path(path, "config.json"), kMaxConfigBytes);
  }
  return source;
}

Result<TransformerConfig> ModelSource::config() const {
  if (gguf_ != nullptr) {
    auto config = gguf_config(*gguf_);
    VOLTA_TRY(gguf_->check_unchanged());  // Comes first: it may explain the error.
    return config;
  }
  if (!config_json_) return std::unexpected(config_json_.error());
  return parse_model_config(*config_json_, place("config.json"));
}

Result<std::unique_ptr<WeightSource>> ModelSource::weights(const TransformerConfig& config) const {
  if (gguf_ != nullptr) {
    VOLTA_TRY(GgufWeights weights, GgufWeights::find(*gguf_, config));
    VOLTA_TRY(gguf_->check_unchanged());
    return std::make_unique<GgufWeights>(std::move(weights));
  }
  VOLTA_TRY(WeightFiles files, WeightFiles::open(path_, config));
  return std::make_unique<WeightFiles>(std::move(files));
}

Result<Transformer> ModelSource::load(std::shared_ptr<Device> device,
                                      const WeightOptions& options) const {
  VOLTA_TRY(const TransformerConfig architecture, config());
  VOLTA_TRY(const auto source, weights(architecture));
  return Transformer::load(architecture, *source, std::move(device), options);
}

Result<std::shared_ptr<const Tokenizer>> ModelSource::tokenizer(Interruption interrupted) const {
  if (gguf_ == nullptr) {
    auto loaded = load_tokenizer(path_, std::move(interrupted));
    if (loaded) return loaded;
    return missing_files_error(std::move(loaded).error(), path_, {"tokenizer.json"});
  }
  auto tokenizer = gguf_tokenizer(*gguf_, std::move(interrupted));
  VOLTA_TRY(gguf_->check_unchanged());
  return tokenizer;
}

// The path of a part of the model, for messages and for reading.
std::string ModelSource::place(std::string_view name) const {
  return gguf_ != nullptr ? path_ : join_path(path_, name);
}

// The text of a folder's file, or its equivalent in a .gguf file; nullopt when there is none.
Result<std::optional<std::string>> ModelSource::read(std::string_view name) const {
  if (gguf_ == nullptr) return read_text_file_if_there(place(name), kMaxConfigBytes);
  VOLTA_TRY(std::string text, gguf_document(*gguf_, name));
  VOLTA_TRY(gguf_->check_unchanged());
  if (text.empty()) return std::nullopt;
  return text;
}

Result<std::optional<ModelSource::Document>> ModelSource::document(std::string_view name) const {
  VOLTA_TRY(const auto text, read(name));
  if (!text) return std::nullopt;
  Document document{.json = {}, .path = place(name)};
  VOLTA_TRY(document.json, parse_json(*text, document.path));
  return document;
}

Result<ChatTemplate::SpecialTokens> ModelSource::special_tokens(
    const std::optional<Document>& tokenizer_config) const {
  ChatTemplate::SpecialTokens tokens;
  if (tokenizer_config) VOLTA_TRY(add_special_tokens(tokenizer_config->ref(), tokens));
  VOLTA_TRY(const auto map, document("special_tokens_map.json"));
  if (map) VOLTA_TRY(add_special_tokens(map->ref(), tokens));
  return tokens;
}

Result<ChatTemplate> ModelSource::chat_template_from(const std::string& file) const {
  VOLTA_TRY(const std::string source, read_text_file(file, kMaxTemplateBytes));
  VOLTA_TRY(const auto tokenizer_config, document("tokenizer_config.json"));
  VOLTA_TRY(auto tokens, special_tokens(tokenizer_config));
  return ChatTemplate::parse(source, file, std::move(tokens));
}

Result<ChatTemplate> ModelSource::chat_template() const {
  if (gguf_ == nullptr) {
    const std::string file = place("chat_template.jinja");
    if (path_exists(file)) return chat_template_from(file);
  }
  VOLTA_TRY(const auto tokenizer_config, document("tokenizer_config.json"));
  std::optional<Document> other;
  const auto member_of =
      [](const std::optional<Document>& place) -> Result<std::optional<JsonRef>> {
    if (!place) return std::nullopt;
    return place->ref().optional_member("chat_template");
  };
  VOLTA_TRY(auto member, member_of(tokenizer_config));
  if (!member) {
    VOLTA_TRY(other, document("chat_template.json"));
    VOLTA_TRY(member, member_of(other));
  }
  if (member) {
    VOLTA_TRY(auto tokens, special_tokens(tokenizer_config));
    return parse_templates(*member, std::move(tokens));
  }
  if (gguf_ != nullptr) {
    return fail(ErrorCode::kNotFound,
                fmt::format("the file '{}' has no chat template (tokenizer.chat_template)", path_));
  }
  return fail(ErrorCode::kNotFound,
              fmt::format("the model folder '{}' has no chat template (chat_template in "
                          "tokenizer_config.json, or chat_template.jinja)",
                          path_));
}

Status ModelSource::check_own_ids(std::span<const std::int32_t> ids,
                                  std::int64_t vocab_size) const {
  const auto beyond = std::ranges::find_if(ids, [&](std::int32_t id) { return id >= vocab_size; });
  if (beyond == ids.end()) return {};
  if (gguf_ != nullptr) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("{}: its tokenizer has the id {}, and its vocabulary the ids 0 to {}: "
                            "the file contradicts itself; get it again",
                            path_, *beyond, vocab_size - 1));
  }
  return fail(
      ErrorCode::kInvalidFile,
      fmt::format("{} has the id {}, and the vocabulary of {} the ids 0 to {} (vocab_size): "
                  "the two files do not belong together; take both from the same model",
                  place("tokenizer.json"), *beyond, place("config.json"), vocab_size - 1));
}

Result<GenerationConfig> ModelSource::own_generation_config() const {
  VOLTA_TRY(const auto own, read("generation_config.json"));
  if (!own) return GenerationConfig();
  return parse_generation_config(*own, place("generation_config.json"));
}

Result<std::vector<std::int32_t>> ModelSource::end_tokens_of_config() const {
  const bool none = !config_json_ && config_json_.error().code() == ErrorCode::kNotFound;
  if (gguf_ != nullptr || none) return std::vector<std::int32_t>();
  if (!config_json_) return std::unexpected(config_json_.error());
  return parse_end_tokens(*config_json_, place("config.json"));
}

Result<GenerationConfig> ModelSource::generation_config(std::int64_t vocab_size) const {
  VOLTA_TRY(GenerationConfig config, own_generation_config());
  VOLTA_TRY(check_end_tokens(config.end_tokens, vocab_size, place("generation_config.json")));
  VOLTA_TRY(const auto more, end_tokens_of_config());
  VOLTA_TRY(check_end_tokens(more, vocab_size, place("config.json")));
  for (const std::int32_t id : more) {
    if (std::ranges::find(config.end_tokens, id) == config.end_tokens.end()) {
      config.end_tokens.push_back(id);
    }
  }
  return config;
}

}  // namespace volta
