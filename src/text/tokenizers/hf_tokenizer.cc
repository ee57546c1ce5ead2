#include "text/tokenizers/hf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.h"
#include "text/tokenizers/byte_level.h"
#include "text/tokenizers/normalized_ranges.h"
#include "text/tokenizers/unicode.h"

namespace volta::tokenizers {
namespace {

// The parts of `ranges` inside a segment, with offsets from its beginning. Ranges that end before
// the segment are removed from `ranges`.
std::vector<TextRange> ranges_within(std::span<const TextRange>& ranges, const Segment& segment) {
  std::vector<TextRange> inner;
  while (!ranges.empty() && ranges.front().end <= segment.begin) ranges = ranges.subspan(1);
  for (const TextRange& range : ranges) {
    if (range.begin >= segment.end) break;
    inner.push_back({std::max(range.begin, segment.begin) - segment.begin,
                     std::min(range.end, segment.end) - segment.begin});
  }
  return inner;
}

// Adds the file's name to errors of the file, unless the message begins with it. Errors of a text
// and interruptions are not errors of the file.
Error in_file(Error error, std::string_view name) {
  const bool is_of_file =
      error.code() != ErrorCode::kInterrupted && error.code() != ErrorCode::kInvalidArgument;
  if (!is_of_file || error.message().starts_with(name)) return error;
  return std::move(error).with_context(name);
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> HfTokenizer::parse(const JsonRef& json, std::string text,
                                                            const std::optional<JsonRef>& config,
                                                            Interruption interrupted) {
  auto tokenizer = std::make_shared<HfTokenizer>();
  tokenizer->name_ = json.path();
  tokenizer->json_ = std::move(text);
  tokenizer->interrupted_ = std::move(interrupted);
  WorkBudget budget(text_work_limits(tokenizer->json_.size()), tokenizer->interrupted_);
  Status parsed = tokenizer->parse_pipeline(json, budget);
  if (parsed) parsed = tokenizer->parse_added_tokens(json, budget);
  if (parsed && config) parsed = tokenizer->parse_config(*config, budget);
  if (parsed) parsed = tokenizer->find_control_words();
  if (!parsed) return std::unexpected(in_file(std::move(parsed).error(), tokenizer->name_));
  tokenizer->store_token_bytes();
  return tokenizer;
}

Result<std::shared_ptr<const Tokenizer>> HfTokenizer::create(
    TokenizerParts parts, Vocabulary vocabulary, std::span<const BpeMerge> merges,
    std::string_view merges_name, std::string name, Interruption interrupted) {
  auto tokenizer = std::make_shared<HfTokenizer>();
  tokenizer->name_ = std::move(name);
  tokenizer->interrupted_ = std::move(interrupted);
  // Each merge makes a token.
  const std::size_t lists = static_cast<std::size_t>(vocabulary.size()) + merges.size();
  WorkBudget budget(text_work_limits(lists), tokenizer->interrupted_);
  Status built = tokenizer->build(parts, merges_name, std::move(vocabulary), merges, budget);
  if (built) built = tokenizer->find_control_words();
  if (!built) return std::unexpected(in_file(std::move(built).error(), tokenizer->name_));
  tokenizer->store_token_bytes();
  tokenizer->parts_ = std::move(parts);
  return tokenizer;
}

Status HfTokenizer::build(const TokenizerParts& parts, std::string_view merges_name,
                          Vocabulary vocabulary, std::span<const BpeMerge> merges,
                          WorkBudget& budget) {
  const std::string space(kVisibleSpace);
  const bool byte_level = parts.form == TokenizerParts::Form::kByteLevel;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> splits;  // The model takes bytes, not their characters.
  std::vector<DecodeStep> decoder;
  if (byte_level) {
    if (parts.nfc) normalizer.emplace_back(NormalFormStep{unicode::Form::kNfc});
    if (parts.digits) {
      splits.emplace_back(CharacterStep{CharacterStep::Class::kDigit, SplitBehavior::kIsolated});
    }
    VOLTA_TRY(SplitStep split, split_at(parts.split, "the pattern of the words"));
    splits.emplace_back(std::move(split));
    decoder.emplace_back(ByteLevelDecode{});
  } else {
    if (parts.space_prefix) normalizer.emplace_back(PrependStep{space});
    normalizer.emplace_back(ReplaceStep{" ", space});
    decoder = {ReplaceStep{space, " "}, ByteFallbackDecode{}, FuseDecode{}};
    if (parts.space_prefix) decoder.emplace_back(StripDecode{.content = " ", .start = 1});
  }
  normalizer_ = Normalizer(std::move(normalizer));
  pre_tokenizer_ = PreTokenizer(std::move(splits));
  decoder_ = Decoder(std::move(decoder));
  if (parts.before || parts.after) {
    post_processor_ = PostProcessor::around(parts.before, parts.after);
  }
  VOLTA_TRY(model_, Bpe::create(parts.model, std::move(vocabulary), merges, merges_name, byte_level,
                                budget));
  kind_ = model_->kind();
  for (const AddedToken& token : parts.added_tokens) {
    VOLTA_TRY(budget.spend(kStepsPerToken, "added_tokens"));
    VOLTA_TRY(added_.add(token, model_->vocabulary(), normalizer_, budget));
  }
  end_token_ = parts.end;
  return {};
}

std::string HfTokenizer::to_json() const {
  const auto* bpe = parts_ ? dynamic_cast<const Bpe*>(model_.get()) : nullptr;
  return bpe == nullptr ? json_ : tokenizer_json(*parts_, bpe->vocabulary(), bpe->merges());
}

Status HfTokenizer::parse_pipeline(const JsonRef& json, WorkBudget& budget) {
  VOLTA_TRY(const auto normalizer, json.optional_member("normalizer"));
  if (normalizer) {
    VOLTA_TRY(normalizer_, Normalizer::parse(*normalizer));
  }
  VOLTA_TRY(const auto pre_tokenizer, json.optional_member("pre_tokenizer"));
  if (pre_tokenizer) {
    VOLTA_TRY(pre_tokenizer_, PreTokenizer::parse(*pre_tokenizer));
  }
  VOLTA_TRY(const auto post_processor, json.optional_member("post_processor"));
  if (post_processor) {
    VOLTA_TRY(post_processor_, PostProcessor::parse(*post_processor));
  }
  VOLTA_TRY(const auto decoder, json.optional_member("decoder"));
  if (decoder) {
    VOLTA_TRY(decoder_, Decoder::parse(*decoder));
  }
  VOLTA_TRY(const JsonRef model, json.member("model"));
  // A model that accepts bytes does not get the byte characters, which are twice as long.
  const bool byte_words = pre_tokenizer_.ends_in_byte_characters() && takes_byte_words(model);
  if (byte_words) pre_tokenizer_.drop_last_step();
  VOLTA_TRY(model_, parse_model(model, byte_words, budget));
  kind_ = model_->kind();
  return {};
}

Status HfTokenizer::parse_added_tokens(const JsonRef& json, WorkBudget& budget) {
  VOLTA_TRY(const auto member, json.optional_member("added_tokens"));
  if (!member) return {};
  VOLTA_TRY(const auto list, member->elements());
  for (const JsonRef& item : list) {
    VOLTA_TRY(AddedToken token, parse_added_token(item));
    VOLTA_TRY(const std::int64_t id, item.get_int("id", 0, kMaxTokenId - 1));
    token.id = static_cast<std::int32_t>(id);
    VOLTA_TRY(added_.check_id(token, model_->vocabulary()));
    VOLTA_TRY(budget.spend(kStepsPerToken, "added_tokens"));
    VOLTA_TRY(added_.add(std::move(token), model_->vocabulary(), normalizer_, budget));
  }
  return {};
}

// Reads tokenizer_config.json: "added_tokens_decoder" may have tokens that tokenizer.json lacks,
// also in place of reserved ones (by their ids), and "eos_token" is the text of a token or an added
// token.
Status HfTokenizer::parse_config(const JsonRef& config, WorkBudget& budget) {
  VOLTA_TRY(const auto added, config.optional_member("added_tokens_decoder"));
  if (added) {
    const JsonValue::Object* tokens = added->node().if_object();
    if (tokens == nullptr) {
      return fail(ErrorCode::kInvalidFile, fmt::format("{}: expected an object", added->path()));
    }
    for (const auto& [key, value] : *tokens) {
      VOLTA_TRY(AddedToken token, parse_added_token(added->at(value)));
      if (added_.find(token.content) >= 0) continue;
      const auto id = parse_int<std::int32_t>(key, "its id", 0, kMaxTokenId - 1);
      if (!id) {
        return fail(ErrorCode::kInvalidFile,
                    fmt::format("{}: {}", added->at(value).path(), id.error().message()));
      }
      token.id = *id;
      VOLTA_TRY(added_.add(std::move(token), model_->vocabulary(), normalizer_, budget));
    }
  }
  VOLTA_TRY(const auto end, config.optional_member("eos_token"));
  if (!end) return {};
  std::string content;
  if (end->node().if_object() != nullptr) {
    VOLTA_TRY(content, end->get_string("content"));
  } else {
    VOLTA_TRY(content, end->as_string());
  }
  const std::int32_t id = added_.find(content);
  end_token_ = id >= 0 ? std::optional(id) : model_->vocabulary().find(content);
  return {};
}

Status HfTokenizer::find_control_words() {
  const Vocabulary& vocabulary = model_->vocabulary();
  for (const std::int32_t id : added_.control_ids()) {
    if (!vocabulary.contains(id)) continue;
    VOLTA_TRY(control_words_.insert(vocabulary.token(id), id));
  }
  return {};
}

void HfTokenizer::store_token_bytes() {
  if (!decoder_.is_byte_level()) return;
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    byte_places_.push_back(bytes_.size());
    const std::string_view text = token_text(id, false).value_or("");
    const auto bytes = from_byte_characters(text);
    if (bytes) {
      bytes_ += *bytes;
    } else {
      bytes_ += text;
    }
  }
  byte_places_.push_back(bytes_.size());
}

std::int64_t HfTokenizer::vocab_size() const {
  return std::max(model_->vocabulary().end_id(), added_.end_id());
}

struct HfTokenizer::Encoding {
  WorkBudget budget;
  WordCache* cache;  // Null when another thread uses it.
  std::vector<std::int32_t> ids;
};

Result<std::vector<std::int32_t>> HfTokenizer::encode(std::string_view text) const {
  std::string storage;
  return encode_text(unicode::repair_utf8(text, storage), {});
}

Result<std::vector<std::int32_t>> HfTokenizer::encode_quoted(const QuotedText& prompt) const {
  if (const auto invalid = find_invalid_utf8(prompt.text)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("byte {} is not UTF-8", *invalid));
  }
  return encode_text(prompt.text, prompt.quoted);
}

Result<std::vector<std::int32_t>> HfTokenizer::encode_text(
    std::string_view text, std::span<const TextRange> quoted) const {
  const std::unique_lock lock(cache_mutex_, std::try_to_lock);
  Encoding out{.budget = WorkBudget(text_work_limits(text.size()), interrupted_),
               .cache = lock.owns_lock() ? &cache_ : nullptr,
               .ids = {}};
  out.ids.reserve(text.size() / 4 + 8);
  Status encoded = encode_text(text, quoted, out);
  if (encoded) return std::move(out.ids);
  return std::unexpected(in_file(std::move(encoded).error(), name_));
}

Status HfTokenizer::encode_text(std::string_view text, std::span<const TextRange> quoted,
                                Encoding& out) const {
  VOLTA_TRY(const auto segments, added_.split(text, false, out.budget, quoted));
  for (const Segment& segment : segments) {
    if (segment.id >= 0) {
      out.ids.push_back(segment.id);
    } else {
      VOLTA_TRY(encode_segment(text.substr(segment.begin, segment.end - segment.begin),
                               segment.begin == 0, ranges_within(quoted, segment), out));
    }
  }
  return {};
}

// Encodes the text between added tokens.
Status HfTokenizer::encode_segment(std::string_view text, bool at_start,
                                   std::span<const TextRange> quoted, Encoding& out) const {
  std::string storage;
  std::vector<TextRange> ranges;
  if (!normalizer_.empty()) {
    VOLTA_TRY(storage, normalizer_.normalize(text, out.budget));
    if (!quoted.empty() && added_.has_normalized_control()) {
      out.budget.add_input(text.size());
      VOLTA_TRY(ranges, normalized_ranges(normalizer_, text, storage, quoted, out.budget));
    }
    text = storage;
  } else {
    ranges.assign(quoted.begin(), quoted.end());
  }
  VOLTA_TRY(const auto segments, added_.split(text, true, out.budget, ranges));
  for (const Segment& segment : segments) {
    if (segment.id >= 0) {
      out.ids.push_back(segment.id);
    } else {
      VOLTA_TRY(encode_words(text.substr(segment.begin, segment.end - segment.begin),
                             at_start && segment.begin == 0, !quoted.empty(), out));
    }
  }
  return {};
}

Status HfTokenizer::encode_words(std::string_view text, bool at_start, bool quotes,
                                 Encoding& out) const {
  VOLTA_TRY(const Words words, pre_tokenizer_.split(text, at_start, out.budget));
  const std::string_view all = words.text();
  for (const Span& span : words.list) {
    VOLTA_TRY(out.budget.spend(1, "the model"));  // Words in the cache take time, too.
    const std::string_view word = all.substr(span.begin, span.end - span.begin);
    const std::size_t before = out.ids.size();
    if (out.cache == nullptr || !out.cache->find(word, out.ids)) {
      VOLTA_TRY(model_->tokenize(word, out.ids, out.budget));
      if (out.cache != nullptr) out.cache->insert(word, std::span(out.ids).subspan(before));
    }
    if (quotes && has_control(std::span(out.ids).subspan(before))) {
      out.ids.resize(before);
      VOLTA_TRY(encode_without_control(word, out));
    }
  }
  return {};
}

bool HfTokenizer::has_control(std::span<const std::int32_t> ids) const {
  return !control_words_.empty() &&
         std::ranges::any_of(ids, [&](std::int32_t id) { return added_.is_control(id); });
}

// Encodes a word that may contain the text of control tokens of the model's vocabulary. The word is
// cut after the first character of each such text.
Status HfTokenizer::encode_without_control(std::string_view word, Encoding& out) const {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < word.size();) {
    std::size_t next = at + 1;
    while (next < word.size() && (static_cast<unsigned char>(word[next]) & 0xC0) == 0x80) ++next;
    const Trie::Match match = control_words_.longest(word.substr(at));
    VOLTA_TRY(out.budget.spend(match.looked_at, "added_tokens"));
    if (match.number != Trie::kNone && next < word.size()) {
      VOLTA_TRY(model_->tokenize(word.substr(begin, next - begin), out.ids, out.budget));
      begin = next;
    }
    at = next;
  }
  return model_->tokenize(word.substr(begin), out.ids, out.budget);
}

Result<std::vector<std::int32_t>> HfTokenizer::encode_prompt(std::string_view text) const {
  VOLTA_TRY(auto ids, encode(text));
  return post_processor_.process(std::move(ids));
}

std::string_view HfTokenizer::token_bytes(std::int32_t id) const {
  if (byte_places_.empty()) return token_text(id, false).value_or("");
  if (id < 0 || id >= vocab_size()) return {};
  const std::size_t begin = byte_places_[static_cast<std::size_t>(id)];
  return std::string_view(bytes_).substr(begin,
                                         byte_places_[static_cast<std::size_t>(id) + 1] - begin);
}

std::optional<std::string_view> HfTokenizer::token_text(std::int32_t id, bool skip_special) const {
  const std::string* added = added_.text(id);
  if (added == nullptr && !model_->vocabulary().contains(id)) return std::nullopt;
  const std::string_view text = added != nullptr ? *added : model_->vocabulary().token(id);
  if (skip_special && added_.is_special(text)) return std::nullopt;
  return text;
}

std::string HfTokenizer::run_decoder(std::span<const std::int32_t> ids, bool skip_special) const {
  Decoder::Run run(decoder_);
  std::string out;
  WorkBudget budget(kAnyNumberOfSteps, interrupted_);  // The decoder has its own limits.
  for (const std::int32_t id : ids) {
    if (!budget.step(16)) break;
    if (const auto text = token_text(id, skip_special)) run.push(*text, out);
  }
  run.finish(out);
  return out;
}

std::string HfTokenizer::decode(std::span<const std::int32_t> ids) const {
  return run_decoder(ids, true);
}

std::string HfTokenizer::decode_all(std::span<const std::int32_t> ids) const {
  return run_decoder(ids, false);
}

class HfTokenizer::Stream final : public TextStream {
 public:
  explicit Stream(const HfTokenizer& tokenizer) : tokenizer_(tokenizer), run_(tokenizer.decoder_) {}
  void push(std::int32_t id, std::string& text) override {
    if (const auto token = tokenizer_.token_text(id, true)) run_.push(*token, text);
  }
  void finish(std::string& text) override { run_.finish(text); }

 private:
  const HfTokenizer& tokenizer_;
  Decoder::Run run_;
};

std::unique_ptr<TextStream> HfTokenizer::stream() const { return std::make_unique<Stream>(*this); }

}  // namespace volta::tokenizers
