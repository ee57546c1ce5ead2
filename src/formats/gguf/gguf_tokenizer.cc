#include "formats/gguf/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "text/tokenizers/vocabulary.h"

namespace volta {
namespace {

constexpr std::string_view kLlama3Split =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kQwen2Split =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kTekkenSplit =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

// The first name of each kind is the one that is written.
constexpr std::array kPreTokenizers = {
    GgufPreTokenizer{.name = "gpt-2", .split = {}},
    GgufPreTokenizer{.name = "phi-2", .split = {}},
    GgufPreTokenizer{.name = "mpt", .split = {}},
    GgufPreTokenizer{.name = "olmo", .split = {}},
    GgufPreTokenizer{.name = "smollm", .split = {}, .digits = true},
    GgufPreTokenizer{.name = "starcoder", .split = {}, .digits = true},
    GgufPreTokenizer{.name = "refact", .split = {}, .digits = true},
    GgufPreTokenizer{.name = "command-r", .split = {}, .digits = true},
    GgufPreTokenizer{
        .name = "llama-bpe", .split = kLlama3Split, .ignore_merges = true, .adds_bos = true},
    GgufPreTokenizer{
        .name = "llama3", .split = kLlama3Split, .ignore_merges = true, .adds_bos = true},
    GgufPreTokenizer{
        .name = "llama-v3", .split = kLlama3Split, .ignore_merges = true, .adds_bos = true},
    GgufPreTokenizer{.name = "smaug-bpe", .split = kLlama3Split},
    GgufPreTokenizer{.name = "dbrx", .split = kLlama3Split},
    GgufPreTokenizer{.name = "qwen2", .split = kQwen2Split, .nfc = true},
    GgufPreTokenizer{.name = "deepseek-r1-qwen", .split = kQwen2Split, .nfc = true},
    GgufPreTokenizer{.name = "tekken", .split = kTekkenSplit, .ignore_merges = true},
};

// The types of tokens in tokenizer.ggml.token_type.
enum class TokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Longer tokens are not pieces of words, and a search for their halves would take long.
constexpr std::size_t kMaxPiece = 256;
// Average per token. Llama 2 has 1.9 ways to make a piece of two others, Gemma 2.3.
constexpr std::size_t kMaxMergesPerToken = 16;

struct Vocabulary {
  std::vector<std::string_view> tokens;
  std::vector<TokenType> types;  // One per token.
  TokenType type(std::size_t id) const { return types[id]; }
};

std::unexpected<Error> damaged(const GgufFile& file, std::string_view what) {
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", file.path(), what));
}

Result<Vocabulary> read_vocabulary(const GgufFile& file) {
  Vocabulary vocabulary;
  VOLTA_TRY(vocabulary.tokens, file.get_strings("tokenizer.ggml.tokens"));
  if (vocabulary.tokens.empty()) return damaged(file, "tokenizer.ggml.tokens is missing or empty");
  VOLTA_TRY(const auto types, file.get_ints("tokenizer.ggml.token_type"));
  if (!types.empty() && types.size() != vocabulary.tokens.size()) {
    return damaged(
        file, fmt::format("{} token types for {} tokens", types.size(), vocabulary.tokens.size()));
  }
  vocabulary.types.assign(vocabulary.tokens.size(), TokenType::kNormal);
  for (std::size_t id = 0; id < types.size(); ++id) {
    vocabulary.types[id] = static_cast<TokenType>(types[id]);
  }
  VOLTA_TRY(const GgufTokenIds ids, gguf_token_ids(file));
  if (types.empty()) {  // Old files: tokens with a role are special.
    for (const auto& id : {ids.bos, ids.eos, ids.eot, ids.unk, ids.pad}) {
      if (id) vocabulary.types[static_cast<std::size_t>(*id)] = TokenType::kControl;
    }
  }
  return vocabulary;
}

void write_vocabulary(JsonWriter& json, const Vocabulary& vocabulary) {
  json.key("vocab").begin_object();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.type(id) != TokenType::kUnused) json.field(vocabulary.tokens[id], id);
  }
  json.end_object();
}

void write_added_tokens(JsonWriter& json, const Vocabulary& vocabulary) {
  json.key("added_tokens").begin_array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenType type = vocabulary.type(id);
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if (!special && type != TokenType::kUserDefined) continue;
    json.begin_object().field("id", id).field("content", vocabulary.tokens[id]);
    json.field("single_word", false).field("lstrip", false).field("rstrip", false);
    json.field("normalized", false).field("special", special).end_object();
  }
  json.end_array();
}

void write_special(JsonWriter& json, std::string_view token) {
  json.begin_object().key("SpecialToken").begin_object().field("id", token).field("type_id", 0);
  json.end_object().end_object();
}

void write_sequence(JsonWriter& json, std::string_view id) {
  json.begin_object().key("Sequence").begin_object().field("id", id).field("type_id", 0);
  json.end_object().end_object();
}

// Writes the template [bos] text [eos], and the same with two texts for a pair.
Status write_post_processor(JsonWriter& json, const GgufFile& file, const Vocabulary& vocabulary,
                            bool adds_bos) {
  VOLTA_TRY(const bool bos, file.get_bool_or("tokenizer.ggml.add_bos_token", adds_bos));
  VOLTA_TRY(const bool eos, file.get_bool_or("tokenizer.ggml.add_eos_token", false));
  VOLTA_TRY(const GgufTokenIds ids, gguf_token_ids(file));
  json.key("post_processor");
  const bool before = bos && ids.bos, after = eos && ids.eos;
  if (!before && !after) {
    json.null();
    return {};
  }
  const auto text = [&](const std::optional<std::int32_t>& id) {
    return vocabulary.tokens[static_cast<std::size_t>(id.value_or(0))];
  };
  json.begin_object().field("type", "TemplateProcessing");
  for (const auto& [key, parts] :
       {std::pair<std::string_view, std::string_view>{"single", "A"}, {"pair", "AB"}}) {
    json.key(key).begin_array();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (before) write_special(json, text(ids.bos));
      write_sequence(json, parts.substr(i, 1));
      if (after) write_special(json, text(ids.eos));
    }
    json.end_array();
  }
  json.key("special_tokens").begin_object();
  const auto describe = [&](const std::optional<std::int32_t>& id) {
    json.key(text(id)).begin_object().field("id", text(id));
    json.key("ids").begin_array().value(id.value_or(0)).end_array();
    json.key("tokens").begin_array().value(text(id)).end_array().end_object();
  };
  if (before) describe(ids.bos);
  if (after && (!before || ids.bos != ids.eos)) describe(ids.eos);
  json.end_object().end_object();
  return {};
}

void write_byte_level(JsonWriter& json, bool splits) {
  json.begin_object().field("type", "ByteLevel").field("add_prefix_space", false);
  json.field("trim_offsets", true).field("use_regex", splits).end_object();
}

void write_pre_tokenizer(JsonWriter& json, const GgufPreTokenizer& pre) {
  json.key("normalizer");
  if (pre.nfc) {
    json.begin_object().field("type", "NFC").end_object();
  } else {
    json.null();
  }
  json.key("pre_tokenizer");
  if (pre.split.empty() && !pre.digits) return write_byte_level(json, true);
  json.begin_object().field("type", "Sequence").key("pretokenizers").begin_array();
  if (pre.digits) {
    json.begin_object().field("type", "Digits").field("individual_digits", true).end_object();
  }
  if (!pre.split.empty()) {
    json.begin_object().field("type", "Split").key("pattern").begin_object();
    json.field("Regex", pre.split).end_object().field("behavior", "Isolated");
    json.field("invert", false).end_object();
  }
  write_byte_level(json, pre.split.empty());
  json.end_array().end_object();
}

void begin_model(JsonWriter& json) {
  json.key("model").begin_object().field("type", "BPE").key("dropout").null();
  json.key("continuing_subword_prefix").null().key("end_of_word_suffix").null();
}

// Converts "a b" to ["a", "b"].
Status write_merges(JsonWriter& json, const GgufFile& file) {
  VOLTA_TRY(const auto merges, file.get_strings("tokenizer.ggml.merges"));
  json.key("merges").begin_array();
  for (const std::string_view merge : merges) {
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) {
      return damaged(file, fmt::format("merge '{}' is not two tokens", merge));
    }
    json.begin_array().value(merge.substr(0, space)).value(merge.substr(space + 1)).end_array();
  }
  json.end_array();
  return {};
}

Result<const GgufPreTokenizer*> pre_tokenizer_of(const GgufFile& file) {
  // Without this key, the split is certain only for architectures with one possible pattern.
  VOLTA_TRY(const auto architecture, file.get_string_or("general.architecture", ""));
  const std::string_view usual = architecture == "gpt2"             ? "gpt-2"
                                 : architecture.starts_with("qwen") ? "qwen2"
                                                                    : "default";
  VOLTA_TRY(const auto name, file.get_string_or("tokenizer.ggml.pre", usual));
  const GgufPreTokenizer* pre = find_gguf_pre_tokenizer(name);
  if (pre != nullptr) return pre;
  std::string known;
  for (const GgufPreTokenizer& each : kPreTokenizers) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", each.name);
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: tokenizer.ggml.pre '{}'; Volta knows {}", file.path(), name, known));
}

Status write_byte_level_bpe(JsonWriter& json, const GgufFile& file, const Vocabulary& vocabulary) {
  VOLTA_TRY(const GgufPreTokenizer* pre, pre_tokenizer_of(file));
  write_pre_tokenizer(json, *pre);
  VOLTA_TRY(write_post_processor(json, file, vocabulary, pre->adds_bos));
  write_byte_level(json.key("decoder"), true);
  begin_model(json);
  json.key("unk_token").null().field("fuse_unk", false).field("byte_fallback", false);
  json.field("ignore_merges", pre->ignore_merges);
  write_vocabulary(json, vocabulary);
  VOLTA_TRY(write_merges(json, file));
  json.end_object();
  return {};
}

// Two pieces that can be merged into a third piece.
struct Merge {
  float score = 0.0f;
  std::size_t left_length = 0, right_length = 0;  // In characters.
  std::size_t token = 0;
  std::string_view left, right;
};

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// SentencePiece merges the two neighbours whose merged piece has the best score. The equivalent
// list of merges has every way to split every piece in two, with the best pieces first. Ties are in
// the order of transformers' converter.
Result<std::vector<Merge>> derive_merges(const Vocabulary& vocabulary,
                                         std::span<const float> scores, WorkBudget& budget) {
  tokenizers::Vocabulary ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view piece = vocabulary.tokens[id];
    if (vocabulary.type(id) != TokenType::kNormal || ids.find(piece)) continue;
    VOLTA_TRY(ids.add(piece, static_cast<std::int64_t>(id)));
  }
  const std::size_t most = kMaxMergesPerToken * vocabulary.tokens.size();
  std::vector<Merge> merges;
  for (std::int32_t id = 0; id < ids.end_id(); ++id) {
    const auto token = static_cast<std::size_t>(id);
    const std::string_view piece = vocabulary.tokens[token];
    if (!ids.contains(id) || piece.size() > kMaxPiece) continue;
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      if ((piece[cut] & 0xC0) == 0x80) continue;  // Inside a character.
      const std::string_view left = piece.substr(0, cut), right = piece.substr(cut);
      VOLTA_TRY(budget.spend(2, "tokenizer.ggml.tokens"));
      if (!ids.find(left) || !ids.find(right)) continue;
      if (merges.size() == most) {
        return fail(ErrorCode::kInvalidFile,
                    fmt::format("the pieces of tokenizer.ggml.tokens can be put together in more "
                                "than {} ways each",
                                kMaxMergesPerToken));
      }
      merges.push_back({scores[token], characters(left), characters(right), token, left, right});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tuple(b.score, b.left_length, b.right_length, a.token) <
           std::tuple(a.score, a.left_length, a.right_length, b.token);
  });
  return merges;
}

void write_replace(JsonWriter& json, std::string_view from, std::string_view to) {
  json.begin_object().field("type", "Replace").key("pattern").begin_object();
  json.field("String", from).end_object().field("content", to).end_object();
}

// Writes the steps that replace spaces by U+2581, with one before the text, and the reverse.
void write_spaces(JsonWriter& json, bool prefix) {
  constexpr std::string_view kSpace = "\u2581";
  json.key("normalizer").begin_object().field("type", "Sequence").key("normalizers").begin_array();
  if (prefix) {
    json.begin_object().field("type", "Prepend").field("prepend", kSpace).end_object();
  }
  write_replace(json, " ", kSpace);
  json.end_array().end_object().key("pre_tokenizer").null();
  json.key("decoder").begin_object().field("type", "Sequence").key("decoders").begin_array();
  write_replace(json, kSpace, " ");
  json.begin_object().field("type", "ByteFallback").end_object();
  json.begin_object().field("type", "Fuse").end_object();
  if (prefix) {
    json.begin_object().field("type", "Strip").field("content", " ").field("start", 1);
    json.field("stop", 0).end_object();
  }
  json.end_array().end_object();
}

Status write_sentence_piece(JsonWriter& json, const GgufFile& file, Vocabulary& vocabulary,
                            WorkBudget& budget) {
  VOLTA_TRY(const bool prefix, file.get_bool_or("tokenizer.ggml.add_space_prefix", true));
  VOLTA_TRY(const auto scores, file.get_floats("tokenizer.ggml.scores"));
  if (scores.size() != vocabulary.tokens.size()) {
    return damaged(file,
                   fmt::format("{} scores for {} tokens", scores.size(), vocabulary.tokens.size()));
  }
  if (!std::ranges::all_of(scores, [](float score) { return std::isfinite(score); })) {
    return damaged(file, "a score of the tokenizer is not finite");
  }
  write_spaces(json, prefix);
  VOLTA_TRY(write_post_processor(json, file, vocabulary, true));
  VOLTA_TRY(const GgufTokenIds ids, gguf_token_ids(file));
  begin_model(json);
  json.field("unk_token", vocabulary.tokens[static_cast<std::size_t>(ids.unk.value_or(0))]);
  json.field("fuse_unk", true).field("ignore_merges", false);
  json.field("byte_fallback", std::ranges::count(vocabulary.types, TokenType::kByte) > 0);
  write_vocabulary(json, vocabulary);
  if (file.find("tokenizer.ggml.merges") != nullptr) {
    VOLTA_TRY(write_merges(json, file));
  } else {
    VOLTA_TRY(const auto merges, derive_merges(vocabulary, scores, budget));
    json.key("merges").begin_array();
    for (const Merge& merge : merges) {
      json.begin_array().value(merge.left).value(merge.right).end_array();
    }
    json.end_array();
  }
  json.end_object();
  return {};
}

}  // namespace

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  const auto found = std::ranges::find(kPreTokenizers, name, &GgufPreTokenizer::name);
  return found == kPreTokenizers.end() ? nullptr : &*found;
}

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view split, bool digits,
                                                bool ignore_merges) {
  const GgufPreTokenizer* found = nullptr;
  for (const GgufPreTokenizer& pre : kPreTokenizers) {
    if (pre.split != split || pre.digits != digits) continue;
    if (pre.ignore_merges == ignore_merges) return &pre;
    if (found == nullptr) found = &pre;
  }
  return found;
}

Result<GgufTokenIds> gguf_token_ids(const GgufFile& file) {
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  const std::int64_t most = std::int64_t{1} << 31;  // For a file without a list.
  const std::int64_t count = tokens == nullptr ? most : std::min(tokens->count, most);
  GgufTokenIds ids;
  for (const auto& [key, id] :
       {std::pair{"bos", &ids.bos}, std::pair{"eos", &ids.eos}, std::pair{"eot", &ids.eot},
        std::pair{"unknown", &ids.unk}, std::pair{"padding", &ids.pad}}) {
    const std::string name = fmt::format("tokenizer.ggml.{}_token_id", key);
    if (file.find(name) == nullptr) continue;
    VOLTA_TRY(const std::int64_t value, file.get_int(name, 0, count - 1));
    *id = static_cast<std::int32_t>(value);
  }
  return ids;
}

Result<std::string> gguf_tokenizer_json(const GgufFile& file, Interruption interrupted) {
  if (file.find(kGgufTokenizerJson) != nullptr) {
    VOLTA_TRY(const auto text, file.get_string(kGgufTokenizerJson));
    return std::string(text);
  }
  VOLTA_TRY(const auto model, file.get_string_or(kGgufTokenizerModel, kGgufNoTokenizer));
  if (model == kGgufNoTokenizer || model == "none") {  // Files use both.
    return fail(ErrorCode::kNotFound, fmt::format("{} has no tokenizer", file.path()));
  }
  if (model != "gpt2" && model != "llama") {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: tokenizer.ggml.model '{}'; Volta knows gpt2 (byte-level BPE) and "
                            "llama (SentencePiece)",
                            file.path(), model));
  }
  VOLTA_TRY(Vocabulary vocabulary, read_vocabulary(file));
  JsonWriter json;
  json.begin_object().field("version", "1.0").key("truncation").null().key("padding").null();
  write_added_tokens(json, vocabulary);
  std::size_t bytes = 0;
  for (const std::string_view token : vocabulary.tokens) bytes += token.size();
  WorkBudget budget(text_work_limits(bytes), std::move(interrupted));
  VOLTA_TRY(model == "gpt2" ? write_byte_level_bpe(json, file, vocabulary)
                            : write_sentence_piece(json, file, vocabulary, budget));
  json.end_object();
  return std::move(json).take() + "\n";
}

Result<std::string> gguf_tokenizer_config(const GgufFile& file) {
  VOLTA_TRY(const GgufTokenIds ids, gguf_token_ids(file));
  VOLTA_TRY(const auto tokens, file.get_strings("tokenizer.ggml.tokens"));
  JsonWriter json(2);
  json.begin_object().field("tokenizer_class", "PreTrainedTokenizerFast");
  for (const auto& [key, id] : {std::pair{"bos_token", ids.bos}, std::pair{"eos_token", ids.eos},
                                std::pair{"unk_token", ids.unk}, std::pair{"pad_token", ids.pad}}) {
    if (id && *id < std::ssize(tokens)) json.field(key, tokens[static_cast<std::size_t>(*id)]);
  }
  json.field("clean_up_tokenization_spaces", false);
  VOLTA_TRY(const auto chat, file.get_string_or("tokenizer.chat_template", ""));
  if (!chat.empty()) json.field("chat_template", chat);
  json.end_object();
  return std::move(json).take() + "\n";
}

Result<std::string> gguf_generation_config(const GgufFile& file) {
  VOLTA_TRY(const GgufTokenIds ids, gguf_token_ids(file));
  if (!ids.bos && !ids.eos && !ids.pad) return std::string();
  JsonWriter json(2);
  json.begin_object();
  if (ids.bos) json.field("bos_token_id", *ids.bos);
  if (ids.eos && ids.eot && ids.eos != ids.eot) {
    json.key("eos_token_id").begin_array().value(*ids.eos).value(*ids.eot).end_array();
  } else if (ids.eos) {
    json.field("eos_token_id", *ids.eos);
  }
  if (ids.pad) json.field("pad_token_id", *ids.pad);
  json.end_object();
  return std::move(json).take() + "\n";
}

Result<std::shared_ptr<const Tokenizer>> parse_gguf_tokenizer(const GgufFile& file,
                                                              std::string_view json,
                                                              std::string_view config,
                                                              Interruption interrupted) {
  const bool whole = file.find(kGgufTokenizerJson) != nullptr;
  const std::string name =
      whole ? fmt::format("{}: {}", file.path(), kGgufTokenizerJson) : file.path();
  return parse_tokenizer(json, name, config, std::move(interrupted));
}

Result<std::shared_ptr<const Tokenizer>> gguf_tokenizer(const GgufFile& file,
                                                        Interruption interrupted) {
  VOLTA_TRY(const std::string json, gguf_tokenizer_json(file, interrupted));
  VOLTA_TRY(const std::string config, gguf_tokenizer_config(file));
  return parse_gguf_tokenizer(file, json, config, std::move(interrupted));
}

}  // namespace volta
