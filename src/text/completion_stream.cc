#include "text/completion_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace volta {
namespace {

// The text of the tokens. It is valid UTF-8 for all tokens.
std::string text_of(const std::shared_ptr<const Tokenizer>& tokenizer,
                    std::span<const std::int32_t> ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

}  // namespace

CompletionStream::CompletionStream(std::shared_ptr<const Tokenizer> tokenizer,
                                   std::span<const std::int32_t> prompt,
                                   std::span<const std::string> stops, CompletionText text)
    : tokenizer_(std::move(tokenizer)), decoder_(tokenizer_), stops_(stops) {
  StreamDecoder decoder(tokenizer_);
  for (const std::int32_t id : prompt) prompt_text_ += decoder.push(id);
  // The text that a decoder holds back at the end of the prompt belongs to the prompt. It must not
  // be part of the first new token's text.
  const std::string rest = decoder.finish();
  const bool within_character = rest.find("\uFFFD") != std::string::npos;
  if (text == CompletionText::kContinuation && within_character) {
    for (const std::int32_t id : prompt) static_cast<void>(decoder_.push(id));
    return;
  }
  prompt_text_ += rest;
  if (text == CompletionText::kContinuation) {
    beginning_.emplace(prompt.begin(), prompt.end());
    prompt_tokens_ = prompt.size();
  }
}

std::string CompletionStream::push(std::int32_t token) {
  if (beginning_) beginning_->push_back(token);
  return stops_.push(behind_prompt(decoder_.push(token), false));
}

std::string CompletionStream::finish() {
  const std::string text = stops_.push(behind_prompt(decoder_.finish(), true));
  return text + stops_.finish();
}

// The first text of a continuation. Prompt and new tokens are decoded together; from the result,
// the prompt's text and the text that the decoder still holds back are removed.
std::string CompletionStream::behind_prompt(std::string piece, bool ended) {
  if (!beginning_ || (piece.empty() && !ended)) return piece;
  const std::vector<std::int32_t> ids = *std::exchange(beginning_, std::nullopt);
  const std::string alone = text_of(tokenizer_, std::span(ids).subspan(prompt_tokens_));
  const std::string whole = text_of(tokenizer_, ids);
  const std::string_view held =
      std::string_view(alone).substr(std::min(piece.size(), alone.size()));
  if (!whole.starts_with(prompt_text_) || !whole.ends_with(held) ||
      whole.size() < prompt_text_.size() + held.size()) {
    return piece;
  }
  return whole.substr(prompt_text_.size(), whole.size() - prompt_text_.size() - held.size());
}

Result<Stops> parse_stops(std::span<const std::string> texts, const Tokenizer* tokenizer,
                          std::string_view what) {
  Stops stops;
  for (const std::string& text : texts) {
    if (tokenizer == nullptr) {
      VOLTA_TRY(const auto id, parse_int<std::int32_t>(text, what, 0));
      stops.tokens.push_back(id);
      continue;
    }
    if (text.empty()) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("{}: an empty stop string", what));
    }
    if (find_invalid_utf8(text)) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("{}: not UTF-8", what));
    }
    const auto ids = tokenizer->encode(text);
    if (ids && ids->size() == 1 && tokenizer->decode(*ids).empty()) {
      stops.tokens.push_back(ids->front());
    } else {
      stops.strings.push_back(text);
    }
  }
  return stops;
}

}  // namespace volta
