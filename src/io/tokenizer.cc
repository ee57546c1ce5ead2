#include "io/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace volta {
namespace {

// GPT-2's printable stand-in for each byte (Radford et al. 2019, encoder.py): printable Latin-1
// characters stand for themselves, the others for code points from 256 on, in order.
constexpr std::array<char32_t, 256> kByteCharacters = [] {
  std::array<char32_t, 256> table{};
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    table[byte] = printable ? byte : next++;
  }
  return table;
}();

std::string utf8(char32_t code_point) {
  std::string text;
  append_utf8(text, code_point);
  return text;
}

// The members of tokenizer.json before and after the vocabulary.
void begin_json(JsonWriter& json, bool byte_level) {
  json.begin_object().field("version", "1.0");
  json.key("truncation").null().key("padding").null();
  json.key("added_tokens").begin_array().end_array().key("normalizer").null();
  json.key("pre_tokenizer");
  if (byte_level) {
    json.begin_object().field("type", "ByteLevel").field("add_prefix_space", false);
    json.field("trim_offsets", true).field("use_regex", false).end_object();
  } else {
    json.null();
  }
  json.key("post_processor").null().key("decoder").begin_object();
  if (byte_level) {
    json.field("type", "ByteLevel").field("add_prefix_space", false);
    json.field("trim_offsets", true).field("use_regex", false).end_object();
  } else {
    json.field("type", "Fuse").end_object();
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
  // `characters` differ; their order is that of the ids.
  explicit CharTokenizer(std::span<const char32_t> characters) {
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
    for (std::size_t place = 0; place < text.size();) {
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
};

// The vocabulary's characters in the order of their ids, which must be 0 .. n-1.
Result<std::vector<char32_t>> read_vocabulary(const JsonRef& vocab) {
  const JsonValue::Object* object = vocab.value().if_object();
  if (object == nullptr || object->empty()) {
    return fail(ErrorCode::kInvalidFile, fmt::format("{}: expected a vocabulary", vocab.path()));
  }
  std::vector<char32_t> characters(object->size(), 0);
  std::vector<bool> seen(object->size(), false);
  for (const auto& [token, value] : *object) {
    const auto character = decode_utf8(token);
    const std::int64_t* id = value.if_int();
    if (!character || static_cast<std::size_t>(character->length) != token.size() ||
        id == nullptr || *id < 0 || *id >= static_cast<std::int64_t>(object->size()) ||
        seen[static_cast<std::size_t>(*id)]) {
      return fail(ErrorCode::kInvalidFile,
                  fmt::format("{}: token '{}': each token must be one character with an id of its "
                              "own from 0 to {}",
                              vocab.path(), token, object->size() - 1));
    }
    seen[static_cast<std::size_t>(*id)] = true;
    characters[static_cast<std::size_t>(*id)] = character->value;
  }
  return characters;
}

}  // namespace

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += token_bytes(id);
  return text;
}

std::shared_ptr<const Tokenizer> make_byte_tokenizer() { return std::make_shared<ByteTokenizer>(); }

Result<std::shared_ptr<const Tokenizer>> make_char_tokenizer(std::string_view text) {
  std::set<char32_t> characters;
  for (std::size_t place = 0; place < text.size();) {
    const auto next = decode_utf8(text.substr(place));
    if (!next) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("byte {} of the text is not UTF-8; convert the text, or use the byte "
                              "tokenizer",
                              place));
    }
    characters.insert(next->value);
    place += static_cast<std::size_t>(next->length);
  }
  if (characters.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the text is empty: it has no characters to learn");
  }
  const std::vector<char32_t> sorted(characters.begin(), characters.end());
  return std::make_shared<CharTokenizer>(sorted);
}

Result<std::shared_ptr<const Tokenizer>> make_tokenizer(std::string_view kind,
                                                        std::string_view text) {
  if (kind == "byte") return make_byte_tokenizer();
  if (kind == "char") return make_char_tokenizer(text);
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("unknown tokenizer '{}'; use byte or char", kind));
}

Result<std::shared_ptr<const Tokenizer>> parse_tokenizer(std::string_view text,
                                                         std::string_view name) {
  VOLTA_TRY(const JsonValue json, parse_json(text, name));
  const JsonRef root(json, name);
  VOLTA_TRY(const JsonRef model, root.member("model"));
  VOLTA_TRY(const std::string type, model.get_string("type"));
  VOLTA_TRY(const auto merges, model.optional_member("merges"));
  const JsonValue::Array* merge_list = merges ? merges->value().if_array() : nullptr;
  if (type != "BPE" || (merges && (merge_list == nullptr || !merge_list->empty()))) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: a {} tokenizer{}; Volta reads byte and character vocabularies (BPE "
                    "without merges)",
                    name, type, merges ? " with merges" : ""));
  }
  VOLTA_TRY(const JsonRef vocab, model.member("vocab"));
  VOLTA_TRY(const auto characters, read_vocabulary(vocab));
  VOLTA_TRY(const auto pre_tokenizer, root.optional_member("pre_tokenizer"));
  if (!pre_tokenizer) return std::make_shared<CharTokenizer>(characters);
  VOLTA_TRY(const std::string split, pre_tokenizer->get_string("type"));
  if (split != "ByteLevel" || !std::ranges::equal(characters, kByteCharacters)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: pre-tokenizer {} with {} tokens; Volta reads byte and character "
                            "vocabularies",
                            name, split, characters.size()));
  }
  return make_byte_tokenizer();
}

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const std::string& directory) {
  const std::string path = join_path(directory, "tokenizer.json");
  VOLTA_TRY(const std::string text, read_text_file(path, std::int64_t{256} << 20));
  return parse_tokenizer(text, path);
}

std::string StreamDecoder::push(std::int32_t id) {
  pending_ += tokenizer_->token_bytes(id);
  std::string out;
  while (!pending_.empty()) {
    const auto next = decode_utf8(pending_);
    if (next) {
      const auto length = static_cast<std::size_t>(next->length);
      out.append(pending_, 0, length);
      pending_.erase(0, length);
      continue;
    }
    // A lead byte announces its length; until that many bytes are here it may still become valid.
    const auto lead = static_cast<unsigned char>(pending_.front());
    const std::size_t wanted = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 1;
    const bool continues = std::all_of(pending_.begin() + 1, pending_.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
    });
    if (lead < 0xF5 && continues && pending_.size() < wanted) break;
    append_utf8(out, 0xFFFD);
    pending_.erase(0, 1);
  }
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  if (!pending_.empty()) append_utf8(out, 0xFFFD);
  pending_.clear();
  return out;
}

}  // namespace volta
