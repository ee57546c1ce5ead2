#include "formats/gguf/gguf_tokenizer_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/carried_files.h"
#include "formats/gguf/gguf_tokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizers/split_scanner.h"

namespace volta {
namespace {

constexpr std::int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5,
                       kByte = 6;

// The lists of tokenizer.ggml.*, indexed by id.
struct Lists {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::map<std::string, std::int32_t> ids;
};

Result<std::string> read_optional(const std::string& directory, std::string_view name) {
  VOLTA_TRY(auto text, read_carried_file(directory, name));
  return std::move(text).value_or("");
}

Status place_token(Lists& lists, const std::string& token, std::int64_t id, std::int32_t type) {
  if (id < 0 || id >= std::ssize(lists.tokens)) {
    return fail(ErrorCode::kInvalidFile,
                fmt::format("tokenizer.json: token '{}' has id {}, the model's vocabulary is {}",
                            token, id, lists.tokens.size()));
  }
  lists.tokens[static_cast<std::size_t>(id)] = token;
  lists.types[static_cast<std::size_t>(id)] = type;
  lists.ids[token] = static_cast<std::int32_t>(id);
  return {};
}

// Lists for a vocabulary in which no id has a token.
Lists empty_lists(std::int64_t vocab_size) {
  Lists lists;
  for (std::int64_t id = 0; id < vocab_size; ++id)
    lists.tokens.push_back(fmt::format("[PAD{}]", id));
  lists.types.assign(lists.tokens.size(), kUnused);
  return lists;
}

Result<Lists> read_lists(const JsonRef& root, const JsonRef& model, std::int64_t vocab_size) {
  Lists lists = empty_lists(vocab_size);
  VOLTA_TRY(const JsonRef vocab, model.member("vocab"));
  const JsonValue::Object* object = vocab.node().if_object();
  if (object == nullptr) return lists;  // A Unigram model's list does not fit tokenizer.ggml.*.
  VOLTA_TRY(const bool bytes, model.get_bool_or("byte_fallback", false));
  VOLTA_TRY(const std::string unknown, model.get_string_or("unk_token", ""));
  for (const auto& [token, value] : *object) {
    const bool byte = bytes && token.size() == 6 && token.starts_with("<0x") && token.back() == '>';
    VOLTA_TRY(const std::int64_t id, vocab.at(value).as_int());
    VOLTA_TRY(place_token(lists, token, id,
                          byte                                   ? kByte
                          : !unknown.empty() && token == unknown ? kUnknown
                                                                 : kNormal));
  }
  VOLTA_TRY(const auto added, root.optional_member("added_tokens"));
  if (!added) return lists;
  VOLTA_TRY(const auto tokens, added->elements());
  for (const JsonRef& token : tokens) {
    VOLTA_TRY(const std::string content, token.get_string("content"));
    VOLTA_TRY(const std::int64_t id, token.get_int("id"));
    VOLTA_TRY(const bool special, token.get_bool_or("special", false));
    const bool is_unknown = bytes && content == unknown;
    VOLTA_TRY(place_token(lists, content, id,
                          is_unknown ? kUnknown
                          : special  ? kControl
                                     : kUserDefined));
  }
  return lists;
}

// Each merge as "a b".
Result<std::vector<std::string>> read_merges(const JsonRef& model) {
  std::vector<std::string> merges;
  VOLTA_TRY(const auto member, model.optional_member("merges"));
  if (!member) return merges;
  VOLTA_TRY(const auto list, member->elements());
  for (const JsonRef& merge : list) {
    if (merge.node().if_string() != nullptr) {
      merges.push_back(*merge.node().if_string());
      continue;
    }
    VOLTA_TRY(const auto pair, merge.elements());
    if (pair.size() != 2) {
      return fail(ErrorCode::kInvalidFile, fmt::format("{}: expected two tokens", merge.path()));
    }
    VOLTA_TRY(const std::string left, pair.front().as_string());
    VOLTA_TRY(const std::string right, pair.back().as_string());
    merges.push_back(fmt::format("{} {}", left, right));
  }
  return merges;
}

// Derives SentencePiece scores from a list of merges: the earlier a token can be made, the higher
// its score.
std::vector<float> scores_of(const Lists& lists, std::span<const std::string> merges) {
  std::vector<float> scores(lists.tokens.size(), 0.0f);
  for (std::size_t id = 0; id < scores.size(); ++id) {
    if (lists.types[id] == kNormal) scores[id] = -static_cast<float>(merges.size() + 1);
  }
  for (std::size_t rank = merges.size(); rank-- > 0;) {
    std::string token = merges[rank];
    const std::size_t space = token.find(' ', 1);
    if (space != std::string::npos) token.erase(space, 1);
    const auto found = lists.ids.find(token);
    if (found == lists.ids.end()) continue;
    scores[static_cast<std::size_t>(found->second)] = -static_cast<float>(rank + 1);
  }
  return scores;
}

// The members of a Sequence, or the pre-tokenizer itself if it is not a Sequence.
std::vector<const JsonValue*> parts_of(const JsonValue* value, std::string_view list) {
  std::vector<const JsonValue*> parts;
  if (value == nullptr || value->is_null()) return parts;
  const JsonValue* inner = value->find(list);
  if (inner == nullptr || inner->if_array() == nullptr) return {value};
  for (const JsonValue& part : *inner->if_array()) parts.push_back(&part);
  return parts;
}

std::string text_of(const JsonValue* value, std::string_view key) {
  const JsonValue* member = value == nullptr ? nullptr : value->find(key);
  return member == nullptr || member->if_string() == nullptr ? "" : *member->if_string();
}

bool flag_of(const JsonValue* value, std::string_view key, bool fallback) {
  const JsonValue* member = value->find(key);
  return member == nullptr || member->if_bool() == nullptr ? fallback : *member->if_bool();
}

// The name of a byte-level split in tokenizer.ggml.pre; null if it has no name there.
const GgufPreTokenizer* name_split(const JsonValue& root, bool ignore_merges) {
  std::string split(tokenizers::kGpt2Pattern);
  bool digits = false, bytes = false, words = false, splits = false;
  for (const JsonValue* part : parts_of(root.find("pre_tokenizer"), "pretokenizers")) {
    const std::string type = text_of(part, "type");
    if (type == "Split" && !splits && text_of(part, "behavior") == "Isolated" &&
        !flag_of(part, "invert", false)) {
      split = text_of(part->find("pattern"), "Regex");
      splits = true;
    } else if (type == "Digits" && flag_of(part, "individual_digits", false)) {
      digits = true;
    } else if (type == "ByteLevel" && !flag_of(part, "add_prefix_space", true)) {
      bytes = true;
      words = flag_of(part, "use_regex", true);
    } else {
      return nullptr;
    }
  }
  if (!bytes || words == splits) return nullptr;
  const GgufPreTokenizer* pre = find_gguf_pre_tokenizer(split, digits, ignore_merges);
  const auto normalizers = parts_of(root.find("normalizer"), "normalizers");
  const bool nfc = normalizers.size() == 1 && text_of(normalizers.front(), "type") == "NFC";
  if (pre == nullptr || (!normalizers.empty() && !(nfc && pre->nfc))) return nullptr;
  // No normalizer fits "qwen2", too: llama.cpp normalises no text of byte-level BPE, and Volta
  // reads the tokenizer.json, which is written beside the name.
  return pre;
}

// Whether the tokenizer puts U+2581 before the text; nullopt if spaces stay spaces.
std::optional<bool> spaces_prefix(const JsonValue& root) {
  bool replaces = false, prefix = false;
  for (const JsonValue* part : parts_of(root.find("normalizer"), "normalizers")) {
    const std::string type = text_of(part, "type");
    prefix = prefix || type == "Prepend";
    replaces = replaces || (type == "Replace" && text_of(part, "content") == "\u2581");
  }
  for (const JsonValue* part : parts_of(root.find("pre_tokenizer"), "pretokenizers")) {
    if (text_of(part, "type") != "Metaspace") continue;
    replaces = true;
    prefix = text_of(part, "prepend_scheme") != "never";
  }
  return replaces ? std::optional(prefix) : std::nullopt;
}

// Adds the lists. Returns false when they cannot express the tokenizer.
Result<bool> add_lists(const JsonValue& root, const JsonRef& model, const Lists& lists,
                       GgufMetadata& metadata) {
  VOLTA_TRY(const std::string type, model.get_string_or("type", ""));
  VOLTA_TRY(const bool bytes, model.get_bool_or("byte_fallback", false));
  if (type != "BPE") return false;
  VOLTA_TRY(const auto merges, read_merges(model));
  VOLTA_TRY(const bool ignore_merges, model.get_bool_or("ignore_merges", false));
  const GgufPreTokenizer* split = name_split(root, ignore_merges);
  const std::optional<bool> prefix = bytes ? spaces_prefix(root) : std::nullopt;
  if (split == nullptr && !prefix) return false;
  metadata.add_string(kGgufTokenizerModel, split != nullptr ? "gpt2" : "llama");
  metadata.add_string("tokenizer.ggml.pre", split != nullptr ? split->name : "default");
  metadata.add_strings("tokenizer.ggml.tokens", lists.tokens);
  metadata.add_ints("tokenizer.ggml.token_type", lists.types);
  if (split != nullptr) {
    metadata.add_strings("tokenizer.ggml.merges", merges);
  } else {
    metadata.add_floats("tokenizer.ggml.scores", scores_of(lists, merges));
    metadata.add_bool("tokenizer.ggml.add_space_prefix", *prefix);
  }
  return true;
}

// The ids for one role: those in generation_config.json, else the token in tokenizer_config.json.
Result<std::vector<std::int64_t>> role_ids(const JsonValue& generation, const JsonValue& config,
                                           std::string_view role, const Lists& lists) {
  std::vector<std::int64_t> ids;
  const auto add = [&](const JsonValue& value) {
    const std::int64_t* id = value.if_int();
    if (id != nullptr && *id >= 0 && *id < std::ssize(lists.tokens)) ids.push_back(*id);
  };
  if (const JsonValue* value = generation.find(fmt::format("{}_token_id", role))) {
    add(*value);
    if (value->if_array() != nullptr) std::ranges::for_each(*value->if_array(), add);
  }
  if (!ids.empty()) return ids;
  const std::string key = fmt::format("{}_token", role);
  const JsonValue* token = config.find(key);
  if (token == nullptr) return ids;
  const std::string text =
      token->if_string() != nullptr ? *token->if_string() : text_of(token, "content");
  const auto found = lists.ids.find(text);
  if (found != lists.ids.end()) ids.push_back(found->second);
  return ids;
}

using Roles = std::map<std::string_view, std::vector<std::int64_t>>;

Result<Roles> add_roles(const JsonValue& generation, const JsonValue& config, const Lists& lists,
                        const std::string& unknown, GgufMetadata& metadata) {
  Roles roles;
  for (const std::string_view role : {"bos", "eos", "unk", "pad"}) {
    VOLTA_TRY(roles[role], role_ids(generation, config, role, lists));
  }
  const auto known = lists.ids.find(unknown);
  if (roles["unk"].empty() && known != lists.ids.end()) roles["unk"].push_back(known->second);
  const auto add = [&](std::string_view key, std::string_view role, std::size_t i) {
    if (roles[role].size() <= i) return;
    metadata.add_u32(fmt::format("tokenizer.ggml.{}_token_id", key),
                     static_cast<std::uint32_t>(roles[role][i]));
  };
  add("bos", "bos", 0);
  add("eos", "eos", 0);
  add("eot", "eos", 1);
  add("unknown", "unk", 0);
  add("padding", "pad", 0);
  return roles;
}

// Finds the tokens that the tokenizer puts around a text by encoding an empty text.
Status add_around(const TokenizerFiles& files, Roles& roles, GgufMetadata& metadata) {
  VOLTA_TRY(const auto tokenizer, parse_tokenizer(files.tokenizer, "tokenizer.json"));
  VOLTA_TRY(auto around, tokenizer->encode_prompt(""));
  const bool bos = !around.empty() && !roles["bos"].empty() && around.front() == roles["bos"][0];
  if (bos) around.erase(around.begin());
  const bool eos = !around.empty() && !roles["eos"].empty() && around.back() == roles["eos"][0];
  metadata.add_bool("tokenizer.ggml.add_bos_token", bos);
  metadata.add_bool("tokenizer.ggml.add_eos_token", eos);
  return {};
}

// The template, or the one named "default" if there are several.
std::string chat_template_of(const JsonValue& config) {
  const JsonValue* value = config.find("chat_template");
  if (value == nullptr) return {};
  if (value->if_string() != nullptr) return *value->if_string();
  if (value->if_array() == nullptr) return {};
  for (const JsonValue& each : *value->if_array()) {
    if (text_of(&each, "name") == "default") return text_of(&each, "template");
  }
  return {};
}

}  // namespace

Result<TokenizerFiles> read_tokenizer_files(const std::string& directory) {
  TokenizerFiles files;
  VOLTA_TRY(files.tokenizer, read_optional(directory, "tokenizer.json"));
  VOLTA_TRY(files.tokenizer_config, read_optional(directory, "tokenizer_config.json"));
  VOLTA_TRY(files.generation_config, read_optional(directory, "generation_config.json"));
  VOLTA_TRY(files.chat_template, read_optional(directory, "chat_template.jinja"));
  VOLTA_TRY(files.chat_template_json, read_optional(directory, "chat_template.json"));
  return files;
}

namespace {

Result<JsonValue> parse_optional(const std::string& text, std::string_view name) {
  return text.empty() ? Result<JsonValue>(JsonValue()) : parse_json(text, name);
}

// Looks in the same order as ModelSource::chat_template().
Result<std::string> find_chat_template(const TokenizerFiles& files, const JsonValue& config) {
  if (!files.chat_template.empty()) return files.chat_template;
  std::string chat = chat_template_of(config);
  if (!chat.empty()) return chat;
  VOLTA_TRY(const JsonValue own, parse_optional(files.chat_template_json, "chat_template.json"));
  return chat_template_of(own);
}

}  // namespace

Result<bool> add_gguf_tokenizer(const TokenizerFiles& files, std::int64_t vocab_size,
                                GgufMetadata& metadata) {
  VOLTA_TRY(const JsonValue config,
            parse_optional(files.tokenizer_config, "tokenizer_config.json"));
  VOLTA_TRY(const JsonValue generation,
            parse_optional(files.generation_config, "generation_config.json"));
  VOLTA_TRY(const std::string chat, find_chat_template(files, config));
  if (!chat.empty()) metadata.add_string("tokenizer.chat_template", chat);
  if (files.tokenizer.empty()) {
    metadata.add_string(kGgufTokenizerModel, kGgufNoTokenizer);
    VOLTA_TRY(add_roles(generation, config, empty_lists(vocab_size), "", metadata));
    return true;
  }
  VOLTA_TRY(const JsonValue root, parse_json(files.tokenizer, "tokenizer.json"));
  const JsonRef ref(root, "tokenizer.json");
  VOLTA_TRY(const JsonRef model, ref.member("model"));
  VOLTA_TRY(const Lists lists, read_lists(ref, model, vocab_size));
  VOLTA_TRY(const bool complete, add_lists(root, model, lists, metadata));
  if (!complete) metadata.add_string(kGgufTokenizerModel, kGgufNoTokenizer);
  VOLTA_TRY(Roles roles,
            add_roles(generation, config, lists, text_of(&model.node(), "unk_token"), metadata));
  VOLTA_TRY(add_around(files, roles, metadata));
  metadata.add_string(kGgufTokenizerJson, files.tokenizer);
  return complete;
}

}  // namespace volta
