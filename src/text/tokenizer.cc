#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "text/tokenizers/byte_level.h"
#include "text/tokenizers/hf_tokenizer.h"
#include "text/tokenizers/tokenizer_parts.h"
#include "text/tokenizers/unicode.h"

namespace volta {
namespace {

using tokenizers::kByteCharacters;

constexpr std::int64_t kMaxTokenizerBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMaxConfigBytes = 16 << 20;

std::string utf8(char32_t code_point) {
  std::string text;
  append_utf8(text, code_point);
  return text;
}

// Writes the members of tokenizer.json before the vocabulary. end_json() writes those after it.
void begin_json(JsonWriter& json, bool byte_level) {
  json.begin_object().field("version", "1.0");
  json.key("truncation").null().key("padding").null();
  json.key("added_tokens").begin_array().end_array().key("normalizer").null();
  json.key("pre_tokenizer");
  if (byte_level) {
    tokenizers::write_byte_level(json, false);
  } else {
    json.null();
  }
  json.key("post_processor").null().key("decoder");
  if (byte_level) {
    tokenizers::write_byte_level(json, false);
  } else {
    json.begin_object().field("type", "Fuse").end_object();
  }
  json.key("model").begin_object().field("type", "BPE").key("dropout").null();
  json.key("unk_token").null().key("continuing_subword_prefix").null();
  json.key("end_of_word_suffix").null().field("fuse_unk", false).field("byte_fallback", false);
  json.key("vocab").begin_object();
}

std::string end_json(JsonWriter json) {
  json.end_object().key("merges").begin_array().end_array().end_object().end_object();
  return std::move(json).take();
}

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    for (std::size_t byte = 0; byte < 256; ++byte) bytes_[byte] = static_cast<char>(byte);
  }
  std::string_view kind() const override { return "byte"; }
  std::int64_t vocab_size() const override { return 256; }

  Result<std::vector<std::int32_t>> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  std::string_view token_bytes(std::int32_t id) const override {
    if (id < 0 || id > 255) return {};
    return std::string_view(bytes_.data(), bytes_.size()).substr(static_cast<std::size_t>(id), 1);
  }

  std::string to_json() const override {
    JsonWriter json;
    begin_json(json, true);
    std::int32_t id = 0;
    for (const char32_t character : kByteCharacters) json.field(utf8(character), id++);
    return end_json(std::move(json));
  }

 private:
  std::array<char, 256> bytes_{};
};

class CharTokenizer final : public Tokenizer {
 public:
  // `characters` must be unique; their order defines the ids.
  CharTokenizer(std::span<const char32_t> characters, Interruption interrupted)
      : interrupted_(std::move(interrupted)) {
    for (const char32_t character : characters) {
      ids_.emplace(character, static_cast<std::int32_t>(tokens_.size()));
      tokens_.push_back(utf8(character));
    }
  }
  std::string_view kind() const override { return "char"; }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(tokens_.size()); }

  Result<std::vector<std::int32_t>> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size());
    WorkBudget budget(text_work_limits(text.size()), interrupted_);
    for (std::size_t place = 0; place < text.size();) {
      VOLTA_TRY(budget.spend(1, "the char tokenizer"));
      const auto next = decode_utf8(text.substr(place));
      if (!next) {
        return fail(
            ErrorCode::kInvalidArgument,
            fmt::format("byte {} of the text is not UTF-8; convert the text, or use the byte "
                        "tokenizer",
                        place));
      }
      const auto known = ids_.find(next->value);
      if (known == ids_.end()) {
        return fail(
            ErrorCode::kInvalidArgument,
            fmt::format("character '{}' (U+{:04X}) at byte {} is not in the vocabulary of {} "
                        "characters",
                        utf8(next->value), static_cast<std::uint32_t>(next->value), place,
                        tokens_.size()));
      }
      ids.push_back(known->second);
      place += static_cast<std::size_t>(next->length);
    }
    return ids;
  }

  std::string_view token_bytes(std::int32_t id) const override {
    if (id < 0 || id >= static_cast<std::int32_t>(tokens_.size())) return {};
    return tokens_[static_cast<std::size_t>(id)];
  }

  std::string to_json() const override {
    JsonWriter json;
    begin_json(json, false);
    std::int32_t id = 0;
    for (const std::string& token : tokens_) json.field(token, id++);
    return end_json(std::move(json));
  }

 private:
  std::vector<std::string> tokens_;
  std::map<char32_t, std::int32_t> ids_;
  Interruption interrupted_;
};

// The characters of a vocabulary that Volta wrote, in the order of their ids 0 to n-1; nullopt for
// other vocabularies.
std::optional<std::vector<char32_t>> own_characters(const JsonValue& vocab) {
  const JsonValue::Object* object = vocab.if_object();
  if (object == nullptr || object->empty()) return std::nullopt;
  std::vector<char32_t> characters(object->size(), 0);
  std::vector<bool> seen(object->size(), false);
  for (const auto& [token, value] : *object) {
    const auto character = decode_utf8(token);
    const std::int64_t* id = value.if_int();
    if (!character || static_cast<std::size_t>(character->length) != token.size() ||
        id == nullptr || *id < 0 || *id >= static_cast<std::int64_t>(object->size()) ||
        seen[static_cast<std::size_t>(*id)]) {
      return std::nullopt;
    }
    seen[static_cast<std::size_t>(*id)] = true;
    characters[static_cast<std::size_t>(*id)] = character->value;
  }
  return characters;
}

// Parses the output of to_json() of the tokenizers above; null for everything else. These
// tokenizers report a character that they lack. A similar tokenizer.json from elsewhere skips such
// characters instead.
std::shared_ptr<const Tokenizer> parse_own(const JsonValue& json, const Interruption& interrupted) {
  const auto is_empty = [](const JsonValue* value) {
    return value == nullptr || value->is_null() ||
           (value->if_array() != nullptr && value->if_array()->empty());
  };
  const auto type_of = [](const JsonValue* value) -> std::string_view {
    const JsonValue* type = value == nullptr ? nullptr : value->find("type");
    return type == nullptr || type->if_string() == nullptr ? std::string_view()
                                                           : std::string_view(*type->if_string());
  };
  const JsonValue* model = json.find("model");
  const JsonValue* vocab = model == nullptr ? nullptr : model->find("vocab");
  if (vocab == nullptr || type_of(model) != "BPE" || !is_empty(model->find("merges")) ||
      !is_empty(model->find("unk_token")) || !is_empty(json.find("added_tokens")) ||
      !is_empty(json.find("normalizer")) || !is_empty(json.find("post_processor"))) {
    return nullptr;
  }
  const auto characters = own_characters(*vocab);
  if (!characters) return nullptr;
  const JsonValue* split = json.find("pre_tokenizer");
  const std::string_view decoder = type_of(json.find("decoder"));
  if (is_empty(split) && decoder == "Fuse") {
    return std::make_shared<CharTokenizer>(*characters, interrupted);
  }
  if (type_of(split) == "ByteLevel" && decoder == "ByteLevel" &&
      std::ranges::equal(*characters, kByteCharacters)) {
    return make_byte_tokenizer();
  }
  return nullptr;
}

// Decodes tokens that are bytes. Holds back the bytes of an incomplete character.
class ByteStream final : public TextStream {
 public:
  explicit ByteStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void push(std::int32_t id, std::string& text) override {
    pending_ += tokenizer_.token_bytes(id);
    while (!pending_.empty()) {
      const unicode::Utf8Front front = unicode::utf8_front(pending_);
      if (front.unfinished) break;
      if (front.valid) {
        text.append(pending_, 0, front.length);
      } else {
        append_utf8(text, 0xFFFD);
      }
      pending_.erase(0, front.length);
    }
  }
  void finish(std::string& text) override {
    if (!pending_.empty()) append_utf8(text, 0xFFFD);
    pending_.clear();
  }

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += token_bytes(id);
  return text;
}

std::shared_ptr<const Tokenizer> make_byte_tokenizer() { return std::make_shared<ByteTokenizer>(); }

Result<std::shared_ptr<const Tokenizer>> make_char_tokenizer(std::string_view text,
                                                             Interruption interrupted) {
  std::set<char32_t> characters;
  WorkBudget budget(text_work_limits(text.size()), interrupted);
  for (std::size_t place = 0; place < text.size();) {
    const auto next = decode_utf8(text.substr(place));
    if (!next) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("byte {} of the text is not UTF-8; convert the text, or use the byte "
                              "tokenizer",
                              place));
    }
    VOLTA_TRY(budget.spend(1, "the char tokenizer"));
    characters.insert(next->value);
    place += static_cast<std::size_t>(next->length);
  }
  if (characters.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the text is empty: it has no characters to learn");
  }
  const std::vector<char32_t> sorted(characters.begin(), characters.end());
  return std::make_shared<CharTokenizer>(sorted, std::move(interrupted));
}

bool is_tokenizer_kind(std::string_view kind) {
  return kind == "byte" || kind == "char" || kind.ends_with(".json");
}

std::unique_ptr<TextStream> Tokenizer::stream() const {
  return std::make_unique<ByteStream>(*this);
}

Result<std::shared_ptr<const Tokenizer>> parse_tokenizer(std::string_view text,
                                                         std::string_view name,
                                                         std::string_view config,
                                                         Interruption interrupted) {
  VOLTA_TRY(const JsonValue json, parse_json(text, name, {}, interrupted));
  if (auto own = parse_own(json, interrupted)) return own;
  JsonValue config_json;
  std::optional<JsonRef> config_ref;
  if (!config.empty()) {
    VOLTA_TRY(config_json, parse_json(config, "tokenizer_config.json", {}, interrupted));
    config_ref.emplace(config_json, "tokenizer_config.json");
  }
  return tokenizers::HfTokenizer::parse(JsonRef(json, name), std::string(text), config_ref,
                                        std::move(interrupted));
}

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& path,
                                                        Interruption interrupted) {
  const std::string directory = is_directory(path) ? path : parent_path(path);
  const std::string file = is_directory(path) ? join_path(path, "tokenizer.json") : path;
  VOLTA_TRY(const std::string text, read_text_file(file, kMaxTokenizerBytes));
  VOLTA_TRY(const auto config, read_text_file_if_there(
                                   join_path(directory, "tokenizer_config.json"), kMaxConfigBytes));
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

namespace {

/// Encodes and decodes a text. Fails as try_tokenizer() does.
Status try_text(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode_prompt(text);
  if (!ids && ids.error().code() == ErrorCode::kInvalidArgument) return {};
  if (!ids) return std::unexpected(ids.error());
  // Decoding cannot fail; it can only reveal errors in the program.
  const std::unique_ptr<TextStream> stream = tokenizer.stream();
  std::string decoded;
  for (const std::int32_t id : *ids) stream->push(id, decoded);
  stream->finish(decoded);
  return {};
}

}  // namespace

Status try_tokenizer(const Tokenizer& tokenizer) {
  constexpr std::string_view kSample =
      " The quick brown fox jumps over the lazy dog. I'll say: \"1,234.50\" <a@b.c>?\n\n\tif (x[0] "
      "!= "
      "'y') { z = -a * 2^8 / 3 % 4; } // #1 & ~2 | $5 + `6` _\\\r\n"
      "\u00C5ngstr\u00F6m caf\u00E9 e\u0301 \u041F\u0440\u0438\u0432\u0435\u0442 "
      "\u0645\u0631\u062D\u0628\u0627 \u0939\u093F\u0928\u094D\u0926\u0940 \u4F60\u597D\u3002 "
      "\u3053\u3093 \uD55C\uAD6D \u2581 \uFB01 \U0001F600   ";
  // Characters of several bytes, which some steps make longer than others.
  constexpr std::string_view kWide = "\u4F60\u597D \u200D\U0001F600 \u00E9";
  VOLTA_TRY(try_text(tokenizer, kSample));
  // Short texts may grow by a constant size, long ones only in proportion (text_work_limits()).
  constexpr std::size_t kLong = 32 << 10;
  for (const std::string_view piece : {kSample, kWide}) {
    std::string text;
    while (text.size() < kLong) text += piece;
    VOLTA_TRY(try_text(tokenizer, text));
  }
  // A regular expression may take exponential time for a run of one character.
  constexpr std::size_t kRun = 1000;
  for (const char repeated : {'a', '7', ' ', '\n', '-'}) {
    VOLTA_TRY(try_text(tokenizer, std::string(kRun, repeated)));
  }
  return {};
}

}  // namespace volta
