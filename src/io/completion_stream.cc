#include "io/completion_stream.h"

#include <fmt/format.h>

#include <utility>

#include "base/text.h"

namespace volta {

CompletionStream::CompletionStream(std::shared_ptr<const Tokenizer> tokenizer,
                                   std::span<const std::int32_t> prompt,
                                   std::span<const std::string> stops)
    : decoder_(std::move(tokenizer)), stops_(stops) {
  for (const std::int32_t id : prompt) prompt_text_ += decoder_.push(id);
}

std::string CompletionStream::finish() {
  const std::string text = stops_.push(decoder_.finish());
  return text + stops_.finish();
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
