// Parses decoders from JSON and runs their steps. The steps are in decode_stages.cc.
#include "text/tokenizers/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/arithmetic.h"
#include "base/text.h"
#include "text/tokenizers/decode_stages.h"
#include "text/tokenizers/limits.h"

namespace volta::tokenizers {
namespace {

// Limits on the growth of a token: the output bytes per input byte, and the additional bytes per
// token. Decoders in use need one byte per byte, and one additional byte.
constexpr std::size_t kMaxBytesPerByte = 64;
constexpr std::size_t kMaxBytesPerToken = 4096;

// The growth of a token by one step.
struct Growth {
  std::size_t per_byte = 1;
  std::size_t per_token = 0;
};

Growth growth(const ReplaceStep& step) {
  const std::size_t after = step.content.size();
  if (const auto* string = std::get_if<std::string>(&step.pattern)) {
    const std::size_t before = std::max(string->size(), std::size_t{1});
    return {.per_byte = std::max(ceil_div(after, before), std::size_t{1})};
  }
  return {.per_byte = after + 1, .per_token = after};  // A match may be anywhere.
}

Growth growth(const DecodeStep& step) {
  if (const auto* replace = std::get_if<ReplaceStep>(&step)) return growth(*replace);
  // Two bytes of a byte character that are not UTF-8 become the three bytes of U+FFFD.
  if (std::holds_alternative<ByteLevelDecode>(step)) return {.per_byte = 2};
  if (std::holds_alternative<WordPieceDecode>(step)) return {.per_token = 1};
  return {};
}

Result<MetaspaceDecode> parse_metaspace_decode(const JsonRef& json) {
  MetaspaceDecode step;
  VOLTA_TRY(step.replacement, json.get_string_or("replacement", "\u2581"));
  VOLTA_TRY(check_step_text(step.replacement, json, "replacement"));
  VOLTA_TRY(const bool prefix_space, json.get_bool_or("add_prefix_space", true));
  VOLTA_TRY(const std::string scheme,
            json.get_string_or("prepend_scheme", prefix_space ? "always" : "never"));
  step.drops_first = scheme != "never";
  return step;
}

Result<StripDecode> parse_strip(const JsonRef& json) {
  constexpr std::int64_t kMost = 1024;
  StripDecode step;
  VOLTA_TRY(step.content, json.get_string("content"));
  VOLTA_TRY(const std::int64_t start, json.get_int_or("start", 0, 0, kMost));
  VOLTA_TRY(const std::int64_t stop, json.get_int_or("stop", 0, 0, kMost));
  step.start = static_cast<std::size_t>(start);
  step.stop = static_cast<std::size_t>(stop);
  const auto character = decode_utf8(step.content);
  if (character && static_cast<std::size_t>(character->length) == step.content.size()) return step;
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: content '{}' is not one character", json.path(), step.content));
}

}  // namespace

Result<Decoder> Decoder::parse(const JsonRef& json) {
  Decoder decoder;
  decoder.steps_.clear();
  VOLTA_TRY(decoder.parse_into(json, 0));
  return decoder;
}

Status Decoder::parse_into(const JsonRef& json, int depth) {
  VOLTA_TRY(const std::string type, json.get_string("type"));
  if (type == "Sequence") {
    if (depth == kMaxDepth) {
      return fail(ErrorCode::kInvalidFile, fmt::format("{}: nested too deeply", json.path()));
    }
    VOLTA_TRY(const JsonRef list, json.member("decoders"));
    VOLTA_TRY(const auto parts, list.elements());
    for (const JsonRef& part : parts) VOLTA_TRY(parse_into(part, depth + 1));
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevelDecode{});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(ByteFallbackDecode{});
  } else if (type == "Fuse") {
    steps_.emplace_back(FuseDecode{});
  } else if (type == "Strip") {
    VOLTA_TRY(StripDecode step, parse_strip(json));
    steps_.emplace_back(std::move(step));
  } else if (type == "Replace") {
    VOLTA_TRY(ReplaceStep step, parse_replace(json));
    steps_.emplace_back(std::move(step));
  } else if (type == "Metaspace") {
    VOLTA_TRY(MetaspaceDecode step, parse_metaspace_decode(json));
    steps_.emplace_back(std::move(step));
  } else if (type == "WordPiece") {
    WordPieceDecode step;
    VOLTA_TRY(step.prefix, json.get_string_or("prefix", "##"));
    VOLTA_TRY(check_step_text(step.prefix, json, "prefix"));
    VOLTA_TRY(step.cleanup, json.get_bool_or("cleanup", true));
    steps_.emplace_back(std::move(step));
  } else if (type == "BPEDecoder") {
    VOLTA_TRY(std::string suffix, json.get_string_or("suffix", "</w>"));
    VOLTA_TRY(check_step_text(suffix, json, "suffix"));
    steps_.emplace_back(BpeDecode{std::move(suffix)});
  } else {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: decoder {} is not supported", json.path(), type));
  }
  if (type == "Sequence") return {};  // Its parts are checked already.
  VOLTA_TRY(check_step_count(steps_, json));
  return check_growth(json);
}

// Decoding cannot fail. So a decoder that could lengthen a token too much is refused.
Status Decoder::check_growth(const JsonRef& json) const {
  Growth all;
  for (const DecodeStep& step : steps_) {
    const Growth next = growth(step);
    all.per_byte *= next.per_byte;
    all.per_token = all.per_token * next.per_byte + next.per_token;
  }
  if (all.per_byte <= kMaxBytesPerByte && all.per_token <= kMaxBytesPerToken) return {};
  return fail(
      ErrorCode::kInvalidFile,
      fmt::format("{}: the decoder makes up to {} bytes of one, and {} of a token without "
                  "any; at most {} and {} are allowed",
                  json.path(), all.per_byte, all.per_token, kMaxBytesPerByte, kMaxBytesPerToken));
}

bool Decoder::is_byte_level() const {
  return !steps_.empty() && std::holds_alternative<ByteLevelDecode>(steps_.front());
}

Decoder::Run::Run(const Decoder& decoder) {
  bool in_chunks = false;  // Tokens arrive in several chunks.
  for (const DecodeStep& step : decoder.steps_) {
    const bool takes_chunks =
        std::holds_alternative<FuseDecode>(step) || std::holds_alternative<StripDecode>(step);
    if (in_chunks && !takes_chunks) {
      stages_.push_back(make_gather_stage());
      in_chunks = false;
    }
    stages_.push_back(make_stage(step));
    in_chunks = in_chunks || std::holds_alternative<FuseDecode>(step) ||
                std::holds_alternative<ByteLevelDecode>(step);
  }
}

// Runs the stages from `from` on over chunks_, and appends what comes out.
void Decoder::Run::pass(std::size_t from, std::string& text) {
  for (std::size_t i = from; i < stages_.size(); ++i) {
    next_.clear();
    for (Chunk& chunk : chunks_) stages_[i]->push(std::move(chunk), next_);
    std::swap(chunks_, next_);
  }
  for (const Chunk& chunk : chunks_) text += chunk.text;
}

void Decoder::Run::push(std::string_view token, std::string& text) {
  if (stages_.empty()) {
    text += token;
    return;
  }
  chunks_.clear();
  stages_.front()->push({std::string(token), true}, chunks_);
  pass(1, text);
}

void Decoder::Run::finish(std::string& text) {
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    chunks_.clear();
    stages_[i]->finish(chunks_);
    pass(i + 1, text);
  }
}

}  // namespace volta::tokenizers
