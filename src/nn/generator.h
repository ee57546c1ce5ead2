// Generator: turns prompts (token ids) into tokens with one model: in each step one token for all
// running requests at once, each with its own seed, and pieces of the prompts of new ones beside.
// Knows nothing of text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "nn/decoder.h"
#include "nn/transformer.h"

namespace [[gnu::visibility("default")]] volta {

/// How one request draws its tokens. temperature 0 is greedy. What is set works in the order of the
/// Sample op: penalties, temperature, top-k, top-p, min-p.
struct SamplingParams {
  float temperature = 1.0f;
  std::int32_t top_k = 0;           ///< 0: off.
  float top_p = 1.0f;               ///< 1: off.
  float min_p = 0.0f;               ///< 0: off.
  float repetition_penalty = 1.0f;  ///< 1: off. Applies to tokens of the prompt and the output.
  float frequency_penalty = 0.0f;   ///< 0: off. Off a logit for each time the output has the token.
  float presence_penalty = 0.0f;    ///< 0: off. Off a logit if the output has the token at all.
  std::uint64_t seed = 0;
};
/// Ranges of every field; the message names the field, its value and the range.
Status validate(const SamplingParams& params);

struct GenerationRequest {
  std::vector<std::int32_t> prompt;  ///< At least one token.
  std::int64_t max_new_tokens = 0;
  SamplingParams sampling;
  std::vector<std::int32_t> stop_tokens;  ///< Generation ends after one of them; it is included.
  /// Asked with each new token that is no stop token, before the callbacks hear of it; true ends
  /// the request after it. For whoever knows the text of the tokens: see CompletionStream.
  std::function<bool(std::int32_t token)> stop_when{};
  /// Tokens that prompt and new ones have together at most, where the cache has room for more;
  /// 0: what the cache holds.
  std::int64_t context = 0;
};

/// Whether a model of this vocabulary and context can run the request; the message names what
/// cannot be.
Status validate(const GenerationRequest& request, std::int64_t vocab, std::int64_t context);

enum class StopReason : std::uint8_t {
  kLength,         ///< max_new_tokens.
  kStopToken,      ///< One of stop_tokens.
  kStopCondition,  ///< stop_when said so.
  kContextFull,    ///< The cache holds no further token of a sequence.
  kCacheFull,      ///< It fills all pages that the cache has. See GeneratorOptions::pages.
  kCancelled,      ///< A callback said so.
};

struct GenerationResult {
  std::vector<std::int32_t> tokens;  ///< New tokens only.
  std::vector<float> logprobs;       ///< Of each new token.
  /// With GeneratorOptions::top_logprobs, for each new token the likeliest ones at its place.
  std::vector<std::vector<TokenLogprob>> top;
  StopReason reason = StopReason::kLength;
};

/// One new token, as it is drawn. Return false to cancel everything (results so far are kept).
struct TokenEvent {
  std::size_t request = 0;
  std::int32_t token = 0;
  float logprob = 0.0f;
  std::span<const TokenLogprob> top{};  ///< As in the result.
};
using TokenCallback = std::function<bool(const TokenEvent&)>;

/// A prompt on its way into the cache, after each piece but the last. Return false to cancel.
struct PromptEvent {
  std::size_t request = 0;
  std::int64_t done = 0;   ///< Tokens of the prompt.
  std::int64_t total = 0;  ///< Of all its tokens.
};

/// What a caller may want to hear while requests run. Each may be empty.
struct GenerationCallbacks {
  TokenCallback token{};
  std::function<bool(const PromptEvent&)> prompt{};
  /// A request has ended; its result will not change. Return false to cancel the others.
  std::function<bool(std::size_t request, const GenerationResult& result)> finished{};
};

struct GeneratorOptions {
  std::int64_t slots = 1;     ///< Requests that run at once; further ones wait for a free slot.
  std::int64_t capacity = 0;  ///< Cache capacity of a request in tokens; 0: the context.
  /// Pages of 64 tokens that all requests share, for each layer; 0: as many as let every slot reach
  /// the capacity. With fewer, a request starts when there are enough for its prompt and all the
  /// tokens that it may bring, and keeps the requests behind it waiting until then: so whoever has
  /// started never has to end for want of pages. Only a request that may bring more than all pages
  /// together hold gets those, runs alone, and ends with kCacheFull when it has filled them.
  std::int64_t pages = 0;
  DType cache_dtype = DType::kF32;
  DType compute_dtype = DType::kF32;
  bool use_cache = true;  ///< false: every token runs the prefill over its whole prefix.
  /// A prompt goes to the free slot whose last sequence has most of its beginning in common with
  /// it, and only the rest runs: what a growing conversation costs is its newest turn. The tokens
  /// are the same. The model's weights must not change between calls.
  bool reuse_prefix = false;
  std::int32_t top_logprobs = 0;  ///< The likeliest tokens to tell with each new one.
  /// true: prompts are read in the largest steps, so that all requests together finish sooner. For
  /// results that nobody reads while they are generated. false: new prompts are read in small
  /// pieces, so that running requests get their next tokens sooner (shared_step_rows()).
  bool prompts_first = false;
};

/// The capacity that sequences of up to `tokens` tokens (prompt and new ones) need: no more than
/// the context, in whole key blocks.
std::int64_t capacity_for(const TransformerConfig& config, std::int64_t tokens);

/// What a generator holds in memory; from prepare() on it is known and stays.
struct GeneratorMemory {
  std::int64_t weight_bytes = 0;
  std::int64_t cache_bytes = 0;
  std::int64_t activation_bytes = 0;  ///< The arena in which all plans work.
  std::int64_t plans = 0;             ///< Made so far.
};

/// Seconds spent, for reports.
struct GenerationTiming {
  double first_token_seconds = 0.0;  ///< From the start to the first token of any request.
  std::int64_t prompt_tokens = 0;    ///< Of all prompts that began.
  std::int64_t reused_tokens = 0;    ///< Of those, what slots held already (reuse_prefix).
  /// From each step that drew tokens, one for every running request whose prompt is read, to the
  /// next: what a reader waits for his next token.
  std::vector<double> token_seconds;
};

class Generator {
 public:
  static Result<Generator> create(const Transformer& model, const GeneratorOptions& options);
  /// Runs all requests, batched over the slots. A request's tokens do not depend on the others.
  /// Errors: empty prompt, ids out of range, prompt longer than the capacity or than all pages of
  /// the cache, bad parameters;
  /// kNonFinite, naming the request and the step, when the logits are not numbers.
  Result<std::vector<GenerationResult>> generate(std::span<const GenerationRequest> requests,
                                                 const TokenCallback& on_token = {});
  Result<std::vector<GenerationResult>> generate(std::span<const GenerationRequest> requests,
                                                 const GenerationCallbacks& callbacks);
  /// Makes the plans that a prompt of this length and decoding need; memory() tells then what
  /// generation will hold. Optional: generate() makes what is missing.
  Status prepare(std::int64_t prompt_tokens) { return decoder_.prepare(prompt_tokens); }
  GeneratorMemory memory() const;
  /// Of the last generate().
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
