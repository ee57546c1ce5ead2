#include "generate_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/json.h"

namespace volta::cli {

std::string_view reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kLength:
      return "length";
    case StopReason::kStopToken:
      return "stop_token";
    case StopReason::kStopCondition:
      return "stop_string";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kCacheFull:
      return "cache_full";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "?";
}

GenerationOutput::GenerationOutput(const Options& options,
                                   std::span<const GenerationRequest> requests)
    : options_(options), requests_(requests), completions_(requests.size()) {}

// The text of a single prompt is written as it grows.
bool GenerationOutput::streams() const {
  return options_.output == Output::kText && requests_.size() == 1 && options_.tokenizer != nullptr;
}

void GenerationOutput::begin(std::size_t request) {
  Completion& completion = completions_[request];
  if (options_.tokenizer == nullptr || completion.stream) return;
  // Text shows the prompt and the answer; JSON holds the answer alone.
  completion.stream.emplace(
      options_.tokenizer, requests_[request].prompt, options_.stops,
      options_.output == Output::kText ? CompletionText::kContinuation : CompletionText::kAnswer);
  if (streams()) written_ = write(completion.stream->prompt_text());
}

bool GenerationOutput::push(std::size_t request, std::int32_t token) {
  begin(request);
  Completion& completion = completions_[request];
  if (!completion.stream) return false;
  const std::string_view text = completion.stream->push(token);
  if (streams() && written_) written_ = write(text);
  return completion.stream->stopped();
}

// Adds the last text of a completion.
void GenerationOutput::end(std::size_t request) {
  begin(request);
  Completion& completion = completions_[request];
  if (!completion.stream) return;
  const std::string_view text = completion.stream->finish();
  completion.text = completion.stream->text();
  if (streams() && written_) written_ = write(std::string(text) + "\n");
}

Status GenerationOutput::finish(std::size_t request, const GenerationResult& result) {
  end(request);
  completions_[request].result = &result;
  VOLTA_TRY(written_);
  if (options_.output != Output::kJson) return write_next();
  completions_[request].stream.reset();
  return {};  // close() writes the array: half of one would be invalid JSON.
}

Status GenerationOutput::close(std::span<const GenerationResult> results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (completions_[i].result == nullptr) end(i);
    completions_[i].result = &results[i];
  }
  VOLTA_TRY(written_);
  if (options_.output != Output::kJson) return write_next();
  JsonWriter json;
  const bool array = options_.array || requests_.size() != 1;
  if (array) json.begin_array();
  for (std::size_t i = 0; i < requests_.size(); ++i) write_json(json, i);
  if (array) json.end_array();
  return write(std::move(json).take() + "\n");
}

// Writes all complete results up to the first incomplete one.
Status GenerationOutput::write_next() {
  for (; next_ < completions_.size() && completions_[next_].result != nullptr; ++next_) {
    Completion& completion = completions_[next_];
    if (options_.output == Output::kJsonLines) {
      JsonWriter json;
      write_json(json, next_);
      VOLTA_TRY(write(std::move(json).take() + "\n"));
    } else if (!streams()) {
      VOLTA_TRY(write(whole(next_)));
    }
    completion.stream.reset();
    completion.text = {};
  }
  return {};
}

// A result as text: the prompt and the answer.
std::string GenerationOutput::whole(std::size_t request) const {
  const Completion& completion = completions_[request];
  std::string text;
  if (requests_.size() > 1) {
    text += fmt::format("--- {} (seed {})\n", request, requests_[request].sampling.seed);
  }
  if (completion.stream) {
    return text + completion.stream->prompt_text() + completion.text + "\n";
  }
  std::vector<std::int32_t> ids = requests_[request].prompt;
  ids.insert(ids.end(), completion.result->tokens.begin(), completion.result->tokens.end());
  return text + fmt::format("{}\n", fmt::join(ids, ","));
}

std::string GenerationOutput::token_text(std::int32_t token) const {
  return std::string(options_.tokenizer->token_bytes(token));
}

void GenerationOutput::write_json(JsonWriter& json, std::size_t request) const {
  const Completion& completion = completions_[request];
  const GenerationResult& result = *completion.result;
  json.begin_object().key("ids").begin_array();
  for (const std::int32_t id : requests_[request].prompt) json.value(id);
  for (const std::int32_t id : result.tokens) json.value(id);
  json.end_array();
  if (options_.tokenizer != nullptr) json.field("text", completion.text);
  json.key("logprobs").begin_array();
  for (const float logprob : result.logprobs) json.value(logprob);
  json.end_array();
  if (!result.top.empty()) {
    json.key("top_logprobs").begin_array();
    for (const auto& top : result.top) {
      json.begin_array();
      for (const TokenLogprob& one : top) {
        json.begin_object().field("id", one.token);
        if (options_.tokenizer != nullptr) json.field("token", token_text(one.token));
        json.field("logprob", one.logprob).end_object();
      }
      json.end_array();
    }
    json.end_array();
  }
  json.field("stop_reason", reason_name(result.reason)).end_object();
}

Status GenerationOutput::write(std::string_view text) {
  if (text.empty()) return {};
  return print(text);
}

}  // namespace volta::cli
