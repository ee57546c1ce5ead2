// The output of volta generate, as text or JSON. The text of a single prompt is written token by
// token. Several results are written whole, in the order of the prompts.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "command.h"
#include "nn/generator.h"
#include "text/completion_stream.h"
#include "text/tokenizer.h"

namespace volta::cli {

/// The name of a reason in JSON: "length", "stop_token", ...
std::string_view reason_name(StopReason reason);

class GenerationOutput {
 public:
  struct Options {
    Output output = Output::kText;
    std::shared_ptr<const Tokenizer> tokenizer;  ///< May be null: then ids are written as text.
    std::vector<std::string> stops;              ///< Stop strings.
    bool array = false;                          ///< JSON: write an array even for one result.
  };
  GenerationOutput(const Options& options, std::span<const GenerationRequest> requests);

  /// Adds a new token of a request. Returns true when it completes a stop string.
  bool push(std::size_t request, std::int32_t token);
  /// Ends a request. Its result is written as soon as all results before it have been written.
  Status finish(std::size_t request, const GenerationResult& result);
  /// Writes the results of requests that did not end, and the end of the output.
  Status close(std::span<const GenerationResult> results);
  /// Whether writing has failed.
  bool failed() const { return !written_; }

 private:
  struct Completion {
    std::optional<CompletionStream> stream;
    std::string text;  // Of all new tokens; empty until the end.
    const GenerationResult* result = nullptr;
  };
  bool streams() const;
  void begin(std::size_t request);
  void end(std::size_t request);
  std::string whole(std::size_t request) const;
  void write_json(JsonWriter& json, std::size_t request) const;
  std::string token_text(std::int32_t token) const;
  Status write_next();
  Status write(std::string_view text);

  Options options_;
  std::span<const GenerationRequest> requests_;
  std::vector<Completion> completions_;
  std::size_t next_ = 0;  // The first result that has not been written.
  Status written_;
};

}  // namespace volta::cli
