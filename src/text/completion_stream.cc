#include "text/completion_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace volta {
namespace {

// The text of the tokens. It is valid UTF-8 for all tokens.
std::string text_of(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  const std::unique_ptr<TextStream> stream = tokenizer.stream();
  std::string text;
  for (const std::int32_t id : ids) stream->push(id, text);
  stream->finish(text);
  return text;
}

}  // namespace

CompletionStream::CompletionStream(std::shared_ptr<const Tokenizer> tokenizer,
                                   std::span<const std::int32_t> prompt,
                                   std::span<const std::string> stops, CompletionText text)
    : tokenizer_(std::move(tokenizer)), stream_(tokenizer_->stream()), stops_(stops) {
  const std::unique_ptr<TextStream> decoder = tokenizer_->stream();
  for (const std::int32_t id : prompt) decoder->push(id, prompt_text_);
  // The text that a decoder holds back at the end of the prompt belongs to the prompt. It must not
  // be part of the first new token's text.
  std::string rest;
  decoder->finish(rest);
  const bool within_character = rest.find("\uFFFD") != std::string::npos;
  if (text == CompletionText::kContinuation && within_character) {
    std::string shown;  // It is that of the prompt; the stream keeps the rest.
    for (const std::int32_t id : prompt) stream_->push(id, shown);
    return;
  }
  prompt_text_ += rest;
  if (text == CompletionText::kContinuation) {
    beginning_.emplace(prompt.begin(), prompt.end());
    prompt_tokens_ = prompt.size();
  }
}

std::string_view CompletionStream::push(std::int32_t token) {
  if (stops_.stopped()) return {};
  if (beginning_) beginning_->push_back(token);
  const std::size_t before = text_.size();
  stream_->push(token, text_);
  remove_prompt(false);
  return show(stops_.push(std::string_view(text_).substr(before)));
}

std::string_view CompletionStream::finish() {
  if (stops_.stopped()) return {};
  const std::size_t before = text_.size();
  stream_->finish(text_);
  remove_prompt(true);
  stops_.push(std::string_view(text_).substr(before));
  return show(stops_.finish());
}

// Shows the first `bytes` of the text. Returns those that were not shown before.
std::string_view CompletionStream::show(std::size_t bytes) {
  const std::size_t before = std::exchange(shown_, bytes);
  return text().substr(before);
}

// Corrects the first text of a continuation. Prompt and new tokens are decoded together; from the
// result, the prompt's text and the text that the stream still holds back are removed.
void CompletionStream::remove_prompt(bool ended) {
  if (!beginning_ || (text_.empty() && !ended)) return;
  const std::vector<std::int32_t> ids = *std::exchange(beginning_, std::nullopt);
  const std::string alone = text_of(*tokenizer_, std::span(ids).subspan(prompt_tokens_));
  const std::string whole = text_of(*tokenizer_, ids);
  const std::string_view held =
      std::string_view(alone).substr(std::min(text_.size(), alone.size()));
  if (!whole.starts_with(prompt_text_) || !whole.ends_with(held) ||
      whole.size() < prompt_text_.size() + held.size()) {
    return;
  }
  text_ = whole.substr(prompt_text_.size(), whole.size() - prompt_text_.size() - held.size());
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
