#include "io/tokenizers/hf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "io/tokenizers/byte_level.h"
#include "io/tokenizers/unicode.h"

namespace volta::tokenizers {

Result<std::shared_ptr<const Tokenizer>> HfTokenizer::parse(const JsonRef& json, std::string text,
                                                            const std::optional<JsonRef>& config) {
  auto tokenizer = std::make_shared<HfTokenizer>();
  tokenizer->json_ = std::move(text);
  VOLTA_TRY(tokenizer->parse_pipeline(json));
  VOLTA_TRY(tokenizer->parse_added_tokens(json));
  if (config) VOLTA_TRY(tokenizer->parse_config(*config));
  tokenizer->store_token_bytes();
  return tokenizer;
}

Status HfTokenizer::parse_pipeline(const JsonRef& json) {
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
  // A model that takes bytes is spared their stand-ins, which are twice as long.
  const bool byte_words = pre_tokenizer_.ends_in_byte_characters() && takes_byte_words(model);
  if (byte_words) pre_tokenizer_.drop_last_step();
  VOLTA_TRY(model_, parse_model(model, byte_words));
  kind_ = model_->kind();
  return {};
}

Status HfTokenizer::parse_added_tokens(const JsonRef& json) {
  VOLTA_TRY(const auto member, json.optional_member("added_tokens"));
  if (!member) return {};
  VOLTA_TRY(const auto list, member->elements());
  for (const JsonRef& item : list) {
    VOLTA_TRY(AddedToken token, parse_added_token(item));
    VOLTA_TRY(const std::int64_t id, item.get_int("id", 0, kMaxTokenId - 1));
    token.id = static_cast<std::int32_t>(id);
    VOLTA_TRY(added_.add(std::move(token), model_->vocabulary(), normalizer_));
  }
  return {};
}

// tokenizer_config.json: "added_tokens_decoder" may hold tokens that tokenizer.json lacks, and
// "eos_token" is the text of a token or an added token.
Status HfTokenizer::parse_config(const JsonRef& config) {
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
      VOLTA_TRY(added_.add(std::move(token), model_->vocabulary(), normalizer_));
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

Result<std::vector<std::int32_t>> HfTokenizer::encode(std::string_view text) const {
  std::string storage;
  text = unicode::repair_utf8(text, storage);
  const std::unique_lock lock(cache_mutex_, std::try_to_lock);
  WordCache* cache = lock.owns_lock() ? &cache_ : nullptr;
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  for (const Segment& segment : added_.split(text, false)) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
    } else {
      VOLTA_TRY(encode_segment(text.substr(segment.begin, segment.end - segment.begin),
                               segment.begin == 0, cache, ids));
    }
  }
  return ids;
}

// Text between added tokens.
Status HfTokenizer::encode_segment(std::string_view text, bool at_start, WordCache* cache,
                                   std::vector<std::int32_t>& ids) const {
  std::string storage;
  if (!normalizer_.empty()) {
    VOLTA_TRY(storage, normalizer_.normalize(text));
    text = storage;
  }
  for (const Segment& segment : added_.split(text, true)) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
    } else {
      VOLTA_TRY(encode_words(text.substr(segment.begin, segment.end - segment.begin),
                             at_start && segment.begin == 0, cache, ids));
    }
  }
  return {};
}

Status HfTokenizer::encode_words(std::string_view text, bool at_start, WordCache* cache,
                                 std::vector<std::int32_t>& ids) const {
  VOLTA_TRY(const Words words, pre_tokenizer_.split(text, at_start));
  const std::string_view all = words.text();
  for (const Span& span : words.list) {
    const std::string_view word = all.substr(span.begin, span.end - span.begin);
    if (cache != nullptr && cache->find(word, ids)) continue;
    const std::size_t before = ids.size();
    VOLTA_TRY(model_->tokenize(word, ids));
    if (cache != nullptr) cache->insert(word, std::span(ids).subspan(before));
  }
  return {};
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
  for (const std::int32_t id : ids) {
    if (const auto text = token_text(id, skip_special)) out += run.push(*text);
  }
  return out + run.finish();
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
  std::string push(std::int32_t id) override {
    const auto text = tokenizer_.token_text(id, true);
    return text ? run_.push(*text) : std::string();
  }
  std::string finish() override { return run_.finish(); }

 private:
  const HfTokenizer& tokenizer_;
  Decoder::Run run_;
};

std::unique_ptr<TextStream> HfTokenizer::stream() const { return std::make_unique<Stream>(*this); }

}  // namespace volta::tokenizers
