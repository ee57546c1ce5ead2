// Generator turns prompts (token ids) into tokens with one model. Each step draws one token for
// every running request, each with its own seed, and also reads pieces of the prompts of new
// requests. It knows nothing about text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "nn/decoder.h"
#include "nn/transformer.h"

namespace [[gnu::visibility("default")]] volta {

/// How one request draws its tokens. Temperature 0 is greedy. The settings apply in the order of
/// the Sample op: penalties, temperature, top-k, top-p, min-p.
struct SamplingParams {
  float temperature = 1.0f;
  std::int32_t top_k = 0;           ///< 0: off.
  float top_p = 1.0f;               ///< 1: off.
  float min_p = 0.0f;               ///< 0: off.
  float repetition_penalty = 1.0f;  ///< 1: off. Applies to tokens of the prompt and of the output.
  float frequency_penalty = 0.0f;   ///< 0: off. Subtracted from a logit each time the output has
                                    ///< the token.
  float presence_penalty = 0.0f;    ///< 0: off. Subtracted once from a logit if the output has the
                                    ///< token.
  std::uint64_t seed = 0;
};
/// Checks the range of every field. The message names the field, its value and the range.
Status validate(const SamplingParams& params);

struct GenerationRequest {
  std::vector<std::int32_t> prompt;  ///< At least one token.
  std::int64_t max_new_tokens = 0;
  SamplingParams sampling;
  std::vector<std::int32_t> stop_tokens;  ///< Generation ends after any of them; it is included.
  /// Called with each new token that is not a stop token, before the token callback. If it returns
  /// true, the request ends after this token. It is for callers that know the text of tokens: see
  /// CompletionStream.
  std::function<bool(std::int32_t token)> stop_when{};
  /// Limits the tokens of this request in the cache (the prompt and all new tokens but the last)
  /// below what the cache holds. 0: no further limit.
  std::int64_t context = 0;
};

/// Checks that a model with this vocabulary and context can run the request. The message names the
/// problem.
Status validate(const GenerationRequest& request, std::int64_t vocab, std::int64_t context);

enum class StopReason : std::uint8_t {
  kLength,         ///< max_new_tokens.
  kStopToken,      ///< One of stop_tokens.
  kStopCondition,  ///< stop_when returned true.
  kContextFull,    ///< The sequence filled its capacity in the cache, or `context`.
  kCacheFull,      ///< The sequence filled all pages of the cache. See GeneratorOptions::pages.
  kCancelled,      ///< A callback returned false, or the device was interrupted.
};

struct GenerationResult {
  std::vector<std::int32_t> tokens;  ///< New tokens only.
  std::vector<float> logprobs;       ///< Of each new token.
  /// Only with GeneratorOptions::top_logprobs: the likeliest tokens at the position of each new
  /// token.
  std::vector<std::vector<TokenLogprob>> top;
  StopReason reason = StopReason::kLength;
};

/// One new token, reported when it is drawn. Return false to cancel all requests; the results so
/// far are kept.
struct TokenEvent {
  std::size_t request = 0;
  std::int32_t token = 0;
  float logprob = 0.0f;
  std::span<const TokenLogprob> top{};  ///< As in the result.
};
using TokenCallback = std::function<bool(const TokenEvent&)>;

/// Progress of a prompt that is being read, reported after each piece but the last. Return false to
/// cancel all requests.
struct PromptEvent {
  std::size_t request = 0;
  std::int64_t done = 0;   ///< Tokens that are cached.
  std::int64_t total = 0;  ///< All tokens of the prompt.
};

/// Callbacks for the caller while requests run. Each may be empty.
struct GenerationCallbacks {
  TokenCallback token{};
  std::function<bool(const PromptEvent&)> prompt{};
  /// Called when a request has ended; its result will not change any more. Return false to cancel
  /// the other requests.
  std::function<bool(std::size_t request, const GenerationResult& result)> finished{};
};

struct GeneratorOptions {
  std::int64_t slots = 1;     ///< Requests that run at once; further ones wait for a free slot.
  std::int64_t capacity = 0;  ///< Tokens that the cache holds per request; 0: the context.
  /// Pages of 64 tokens that all requests share, for each layer. 0: enough for every slot to reach
  /// the capacity. With fewer pages, a request starts only when there are enough for its prompt and
  /// for all tokens that it may generate; until then, the requests behind it wait, too. So a
  /// request that has started never ends for lack of pages. The only exception is a request that
  /// may need more pages than there are: it gets all of them, runs alone, and ends with kCacheFull
  /// when it has filled them.
  std::int64_t pages = 0;
  std::optional<DType> cache_dtype{};  ///< Of the KV cache; nothing: what the device prefers.
  DType compute_dtype = DType::kF32;
  bool use_cache = true;  ///< false: each new token recomputes its whole prefix.
  /// Puts a prompt into the free slot whose last sequence has the longest beginning in common with
  /// it, and computes only the rest. So each turn of a growing conversation costs only its new
  /// tokens. The tokens are the same. The model's weights must not change between calls.
  bool reuse_prefix = false;
  std::int32_t top_logprobs = 0;  ///< How many of the likeliest tokens to report with each new one.
  /// true: prompts are read in the largest steps, so that all requests together finish sooner. Use
  /// it if nobody reads results while they are generated. false: new prompts are read in small
  /// pieces, so that running requests get their next tokens sooner (shared_step_rows()).
  bool prompts_first = false;
};

/// The capacity that sequences of up to `tokens` tokens (prompt and new ones) need: whole key
/// blocks, but at most the context.
std::int64_t capacity_for(const TransformerConfig& config, std::int64_t tokens);

/// What a generator holds in memory; known from prepare() on.
struct GeneratorMemory {
  std::int64_t weight_bytes = 0;
  std::int64_t cache_bytes = 0;
  std::int64_t activation_bytes = 0;  ///< The arena that all plans share.
  std::int64_t plans = 0;             ///< Made so far.
};

/// Seconds spent, for reports.
struct GenerationTiming {
  double first_token_seconds = 0.0;  ///< From the start to the first token of any request.
  std::int64_t prompt_tokens = 0;    ///< Of all prompts that were started.
  std::int64_t reused_tokens = 0;    ///< Those of them that slots already held (reuse_prefix).
  /// For each step that drew tokens, except the first: the seconds since the previous such step.
  /// This is how long a reader waits for the next token.
  std::vector<double> token_seconds;
};

class Generator {
 public:
  static Result<Generator> create(const Transformer& model, const GeneratorOptions& options);
  /// Runs all requests, batched over the slots. The tokens of a request do not depend on the other
  /// requests. Errors: an empty prompt, ids out of range, a prompt longer than the capacity or than
  /// all pages of the cache, bad parameters; kNonFinite, naming the request and the step, if the
  /// logits are not finite.
  Result<std::vector<GenerationResult>> generate(std::span<const GenerationRequest> requests,
                                                 const TokenCallback& on_token = {});
  Result<std::vector<GenerationResult>> generate(std::span<const GenerationRequest> requests,
                                                 const GenerationCallbacks& callbacks);
  /// Makes the plans for a prompt of this length and for decoding; memory() then reports what
  /// generation will hold. Optional: generate() makes missing plans.
  Status prepare(std::int64_t prompt_tokens) { return decoder_.prepare(prompt_tokens); }
  GeneratorMemory memory() const;
  /// The timing of the last generate().
  const GenerationTiming& timing() const { return timing_; }

 private:
  struct Session;
  Generator(Decoder decoder, const GeneratorOptions& options)
      : decoder_(std::move(decoder)), options_(options) {}

  Decoder decoder_;
  GeneratorOptions options_;
  GenerationTiming timing_;
};

}  // namespace volta
