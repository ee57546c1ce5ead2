#include "formats/gguf/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "text/tokenizers/hf_tokenizer.h"
#include "text/tokenizers/split_scanner.h"
#include "text/tokenizers/tokenizer_parts.h"

namespace volta {
namespace {

constexpr std::string_view kTekkenSplit =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

// The first name of each kind is the one that is written.
constexpr std::array kPreTokenizers = {
    GgufPreTokenizer{.name = "gpt-2", .split = tokenizers::kGpt2Pattern},
    GgufPreTokenizer{.name = "phi-2", .split = tokenizers::kGpt2Pattern},
    GgufPreTokenizer{.name = "mpt", .split = tokenizers::kGpt2Pattern},
    GgufPreTokenizer{.name = "olmo", .split = tokenizers::kGpt2Pattern},
    GgufPreTokenizer{.name = "smollm", .split = tokenizers::kGpt2Pattern, .digits = true},
    GgufPreTokenizer{.name = "starcoder", .split = tokenizers::kGpt2Pattern, .digits = true},
    GgufPreTokenizer{.name = "refact", .split = tokenizers::kGpt2Pattern, .digits = true},
    GgufPreTokenizer{.name = "command-r", .split = tokenizers::kGpt2Pattern, .digits = true},
    GgufPreTokenizer{.name = "llama-bpe",
                     .split = tokenizers::kLlama3Pattern,
                     .ignore_merges = true,
                     .adds_bos = true},
    GgufPreTokenizer{.name = "llama3",
                     .split = tokenizers::kLlama3Pattern,
                     .ignore_merges = true,
                     .adds_bos = true},
    GgufPreTokenizer{.name = "llama-v3",
                     .split = tokenizers::kLlama3Pattern,
                     .ignore_merges = true,
                     .adds_bos = true},
    GgufPreTokenizer{.name = "smaug-bpe", .split = tokenizers::kLlama3Pattern},
    GgufPreTokenizer{.name = "dbrx", .split = tokenizers::kLlama3Pattern},
    GgufPreTokenizer{.name = "qwen2", .split = tokenizers::kQwen2Pattern, .nfc = true},
    GgufPreTokenizer{.name = "deepseek-r1-qwen", .split = tokenizers::kQwen2Pattern, .nfc = true},
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

constexpr std::string_view kMerges = "tokenizer.ggml.merges";
// Longer tokens are not pieces of words, and a search for their halves would take long.
constexpr std::size_t kMaxPiece = 256;
// Average per token. Llama 2 has 1.9 ways to make a piece of two others, Gemma 2.3.
constexpr std::size_t kMaxMergesPerToken = 16;

// The tokens by id, as views of the file.
struct TokenLists {
  std::vector<std::string_view> tokens;
  std::vector<TokenType> types;  // One per token.
};

std::unexpected<Error> damaged(const GgufFile& file, std::string_view what) {
  return fail(ErrorCode::kInvalidFile, fmt::format("{}: {}", file.path(), what));
}

Result<TokenLists> read_token_lists(const GgufFile& file) {
  TokenLists lists;
  VOLTA_TRY(lists.tokens, file.get_strings("tokenizer.ggml.tokens"));
  if (lists.tokens.empty()) return damaged(file, "tokenizer.ggml.tokens is missing or empty");
  VOLTA_TRY(const auto types, file.get_ints("tokenizer.ggml.token_type"));
  if (!types.empty() && types.size() != lists.tokens.size()) {
    return damaged(file,
                   fmt::format("{} token types for {} tokens", types.size(), lists.tokens.size()));
  }
  lists.types.assign(lists.tokens.size(), TokenType::kNormal);
  for (std::size_t id = 0; id < types.size(); ++id) {
    if (types[id] < 1 || types[id] > static_cast<std::int32_t>(TokenType::kByte)) {
      return damaged(file,
                     fmt::format("tokenizer.ggml.token_type is {} for token {} ('{}'); the "
                                 "types are 1 (normal), 2 (unknown), 3 (control), 4 (defined "
                                 "by the user), 5 (unused) and 6 (byte). Convert the model again",
                                 types[id], id, lists.tokens[id]));
    }
    lists.types[id] = static_cast<TokenType>(types[id]);
  }
  VOLTA_TRY(const GgufTokenIds ids, gguf_token_ids(file));
  if (types.empty()) {  // Old files: tokens with a role are special.
    for (const auto& id : {ids.bos, ids.eos, ids.eot, ids.unk, ids.pad}) {
      if (id) lists.types[static_cast<std::size_t>(*id)] = TokenType::kControl;
    }
  }
  return lists;
}

Result<tokenizers::Vocabulary> make_vocabulary(const GgufFile& file, const TokenLists& lists,
                                               WorkBudget& budget) {
  tokenizers::Vocabulary vocabulary;
  for (std::size_t id = 0; id < lists.tokens.size(); ++id) {
    if (lists.types[id] == TokenType::kUnused) continue;
    VOLTA_TRY(budget.spend(tokenizers::kStepsPerToken, "tokenizer.ggml.tokens"));
    const std::string_view token = lists.tokens[id];
    if (const auto earlier = vocabulary.find(token)) {
      return damaged(file, fmt::format("tokens {} and {} are both '{}'", *earlier, id, token));
    }
    if (Status added = vocabulary.add(token, static_cast<std::int64_t>(id)); !added) {
      return std::unexpected(std::move(added).error().with_context(file.path()));
    }
  }
  return vocabulary;
}

std::vector<tokenizers::AddedToken> make_added_tokens(const TokenLists& lists) {
  std::vector<tokenizers::AddedToken> added;
  for (std::size_t id = 0; id < lists.tokens.size(); ++id) {
    const TokenType type = lists.types[id];
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if (!special && type != TokenType::kUserDefined) continue;
    added.push_back({.id = static_cast<std::int32_t>(id),
                     .content = std::string(lists.tokens[id]),
                     .normalized = false,
                     .special = special});
  }
  return added;
}

// Sets the tokens around a text and the one that ends it.
Status set_roles(const GgufFile& file, const tokenizers::Vocabulary& vocabulary, bool adds_bos,
                 tokenizers::TokenizerParts& parts) {
  VOLTA_TRY(const bool bos, file.get_bool_or("tokenizer.ggml.add_bos_token", adds_bos));
  VOLTA_TRY(const bool eos, file.get_bool_or("tokenizer.ggml.add_eos_token", false));
  VOLTA_TRY(const GgufTokenIds ids, gguf_token_ids(file));
  const auto used = [&](std::optional<std::int32_t> id) {
    return id && vocabulary.contains(*id) ? id : std::nullopt;
  };
  parts.end = used(ids.eos);
  if (bos) parts.before = used(ids.bos);
  if (eos) parts.after = parts.end;
  return {};
}

// Reads the list of merges, "a b".
Result<std::vector<tokenizers::BpeMerge>> read_merges(const GgufFile& file) {
  if (file.find(kMerges) == nullptr) return damaged(file, fmt::format("{} is missing", kMerges));
  VOLTA_TRY(const auto lines, file.get_strings(kMerges));
  std::vector<tokenizers::BpeMerge> merges;
  merges.reserve(lines.size());
  for (const std::string_view line : lines) {
    const std::size_t space = line.find(' ', 1);
    if (space == std::string_view::npos) {
      return damaged(file, fmt::format("merge '{}' is not two tokens", line));
    }
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
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

// Two pieces that can be merged into a third piece.
struct ScoredMerge {
  float score = 0.0f;
  std::size_t left_length = 0, right_length = 0;  // In characters.
  std::size_t token = 0;
  tokenizers::BpeMerge pieces;
};

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// SentencePiece merges the two neighbours whose merged piece has the best score. The equivalent
// list of merges has every way to split every piece in two, with the best pieces first. Ties are in
// the order of transformers' converter.
Result<std::vector<tokenizers::BpeMerge>> derive_merges(const TokenLists& lists,
                                                        std::span<const float> scores,
                                                        WorkBudget& budget) {
  tokenizers::Vocabulary ids;
  for (std::size_t id = 0; id < lists.tokens.size(); ++id) {
    if (lists.types[id] != TokenType::kNormal) continue;
    VOLTA_TRY(ids.add(lists.tokens[id], static_cast<std::int64_t>(id)));
  }
  const std::size_t most =
      std::min(kMaxMergesPerToken * lists.tokens.size(), tokenizers::kMaxMerges);
  std::vector<ScoredMerge> found;
  for (std::int32_t id = 0; id < ids.end_id(); ++id) {
    const auto token = static_cast<std::size_t>(id);
    const std::string_view piece = lists.tokens[token];
    if (!ids.contains(id) || piece.size() > kMaxPiece) continue;
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      if ((piece[cut] & 0xC0) == 0x80) continue;  // Inside a character.
      const std::string_view left = piece.substr(0, cut), right = piece.substr(cut);
      VOLTA_TRY(budget.spend(2, "tokenizer.ggml.tokens"));
      if (!ids.find(left) || !ids.find(right)) continue;
      if (found.size() == most) {
        return fail(ErrorCode::kInvalidFile,
                    fmt::format("the pieces of tokenizer.ggml.tokens can be put together in more "
                                "than {} ways",
                                most));
      }
      found.push_back({scores[token], characters(left), characters(right), token, {left, right}});
    }
  }
  std::sort(found.begin(), found.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tuple(b.score, b.left_length, b.right_length, a.token) <
           std::tuple(a.score, a.left_length, a.right_length, b.token);
  });
  std::vector<tokenizers::BpeMerge> merges;
  merges.reserve(found.size());
  for (const ScoredMerge& merge : found) merges.push_back(merge.pieces);
  return merges;
}

// The parts of SentencePiece's models that do not depend on the merges.
Status read_sentence_piece(const GgufFile& file, const TokenLists& lists,
                           tokenizers::TokenizerParts& parts) {
  parts.form = tokenizers::TokenizerParts::Form::kSpaces;
  VOLTA_TRY(parts.space_prefix, file.get_bool_or("tokenizer.ggml.add_space_prefix", true));
  VOLTA_TRY(const GgufTokenIds ids, gguf_token_ids(file));
  parts.model.unknown = lists.tokens[static_cast<std::size_t>(ids.unk.value_or(0))];
  parts.model.fuse_unknown = true;
  parts.model.byte_fallback = std::ranges::count(lists.types, TokenType::kByte) > 0;
  return {};
}

// The merges in the file, or those that follow from the scores.
Result<std::vector<tokenizers::BpeMerge>> sentence_piece_merges(const GgufFile& file,
                                                                const TokenLists& lists,
                                                                WorkBudget& budget) {
  VOLTA_TRY(const auto scores, file.get_floats("tokenizer.ggml.scores"));
  if (scores.size() != lists.tokens.size()) {
    return damaged(file,
                   fmt::format("{} scores for {} tokens", scores.size(), lists.tokens.size()));
  }
  if (!std::ranges::all_of(scores, [](float score) { return std::isfinite(score); })) {
    return damaged(file, "a score of the tokenizer is not finite");
  }
  if (file.find(kMerges) != nullptr) return read_merges(file);
  return derive_merges(lists, scores, budget);
}

// The tokenizer of tokenizer.ggml.*; `model` is gpt2 or llama.
Result<std::shared_ptr<const Tokenizer>> make_from_lists(const GgufFile& file,
                                                         std::string_view model,
                                                         Interruption interrupted) {
  VOLTA_TRY(const TokenLists lists, read_token_lists(file));
  std::size_t bytes = 0;
  for (const std::string_view token : lists.tokens) bytes += token.size();
  WorkBudget budget(text_work_limits(bytes), interrupted);
  VOLTA_TRY(tokenizers::Vocabulary vocabulary, make_vocabulary(file, lists, budget));
  tokenizers::TokenizerParts parts;
  parts.added_tokens = make_added_tokens(lists);
  std::vector<tokenizers::BpeMerge> merges;
  bool adds_bos = true;
  if (model == "gpt2") {
    VOLTA_TRY(const GgufPreTokenizer* pre, pre_tokenizer_of(file));
    parts.nfc = pre->nfc;
    parts.digits = pre->digits;
    parts.split = pre->split;
    parts.model.ignore_merges = pre->ignore_merges;
    adds_bos = pre->adds_bos;
    VOLTA_TRY(merges, read_merges(file));
  } else {
    VOLTA_TRY(read_sentence_piece(file, lists, parts));
    VOLTA_TRY(merges, sentence_piece_merges(file, lists, budget));
  }
  VOLTA_TRY(set_roles(file, vocabulary, adds_bos, parts));
  return tokenizers::HfTokenizer::create(std::move(parts), std::move(vocabulary), merges, kMerges,
                                         file.path(), std::move(interrupted));
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

Result<std::shared_ptr<const Tokenizer>> gguf_tokenizer(const GgufFile& file,
                                                        Interruption interrupted) {
  if (file.find(kGgufTokenizerJson) != nullptr) {
    VOLTA_TRY(const auto json, file.get_string(kGgufTokenizerJson));
    VOLTA_TRY(const std::string config, gguf_tokenizer_config(file));
    return parse_tokenizer(json, fmt::format("{}: {}", file.path(), kGgufTokenizerJson), config,
                           std::move(interrupted));
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
  return make_from_lists(file, model, std::move(interrupted));
}

}  // namespace volta
