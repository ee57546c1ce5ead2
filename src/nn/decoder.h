// Decoder: a model with a KV cache and the plans that run on it. Fills a slot with a prompt, and
// advances all slots by one token at a time. Knows slots and tokens, not requests (see Generator).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "device/executable.h"
#include "nn/kv_cache.h"
#include "nn/rope_table.h"
#include "nn/transformer.h"

namespace volta {

struct DecoderOptions {
  std::int64_t slots = 1;     ///< Sequences at once.
  std::int64_t capacity = 0;  ///< Cache capacity in tokens; 0: the context.
  DType cache_dtype = DType::kF32;
  DType compute_dtype = DType::kF32;
  std::int32_t top = 0;  ///< How many of the likeliest tokens a drawn one comes with.
};

/// One slot's sampling parameters, a row of the Sample op's input.
using SamplingRow = std::array<float, kSampleParams>;
/// {seed, step} of one draw.
using SampleRng = std::array<std::int64_t, 2>;

/// A token and its probability under softmax(logits), before penalties and filters.
struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0.0f;
  bool operator==(const TokenLogprob&) const = default;
};

/// A token as the Sample op drew it.
struct DrawnToken {
  std::int32_t token = 0;
  float logprob = 0.0f;
  std::vector<TokenLogprob> top{};  ///< The likeliest first.
};

/// Hears how many tokens of a prompt are cached, after each chunk but the last; false ends the
/// prefill there.
using PrefillProgress = FunctionRef<bool(std::int64_t done)>;

class Decoder {
 public:
  static Result<Decoder> create(const Transformer& model, const DecoderOptions& options);

  std::int64_t slots() const { return cache_.slots(); }
  std::int64_t capacity() const { return cache_.capacity(); }
  const TransformerKvCache& cache() const { return cache_; }
  const Transformer& model() const { return model_; }

  /// Makes the plans that a prompt of `tokens` tokens and decoding after it need, so that
  /// activation_bytes() is known before anything runs.
  Status prepare(std::int64_t tokens);
  /// Begins the penalties of `slot` anew with the tokens (checked ids) of its prompt.
  Status set_counts(std::int64_t slot, std::span<const std::int32_t> tokens);
  /// Forgets the slot, runs `tokens` (at least one, at most capacity(), checked ids) through it in
  /// chunks, and draws the token that follows. kInterrupted when `progress` says so.
  Result<DrawnToken> prefill(std::int64_t slot, std::span<const std::int32_t> tokens,
                             const SamplingRow& sampling, const SampleRng& rng,
                             PrefillProgress progress = keep_going);
  /// The same, but what the slot already holds of the beginning of `tokens` is not run again. The
  /// result has the same bits, as long as the model's weights have not changed.
  Result<DrawnToken> extend(std::int64_t slot, std::span<const std::int32_t> tokens,
                            const SamplingRow& sampling, const SampleRng& rng,
                            PrefillProgress progress = keep_going);
  /// How many tokens extend() would not run again.
  std::int64_t reusable(std::int64_t slot, std::span<const std::int32_t> tokens) const;
  /// What the next step feeds to `slot`, which must have room for it. A slot that was not set since
  /// the last step stays idle.
  Status set_next(std::int64_t slot, std::int32_t token, const SamplingRow& sampling,
                  const SampleRng& rng);
  Status set_idle(std::int64_t slot);
  /// Feeds every set slot its token and draws the next one.
  Status step();
  Result<DrawnToken> drawn(std::int64_t slot) const;

  /// Bytes of the arenas of all plans made so far, and their number.
  std::int64_t activation_bytes() const;
  std::int64_t plan_count() const;

 private:
  /// A loaded plan over some slots with `chunk` rows each, and the host's copies of its inputs and
  /// results, slot after slot. They go to the device and come back as one block each.
  struct Runner {
    Executable executable;
    std::int64_t chunk = 1;
    std::span<std::int32_t> ids{}, positions{};        // [slots, chunk]
    std::span<std::int32_t> start{}, count{}, last{};  // [slots]
    std::span<float> sampling{};                       // [slots, kSampleParams]
    std::span<std::int64_t> rng{};                     // [slots, 2]
    std::span<const std::int32_t> token{};             // [slots]
    std::span<const float> logprob{};                  // [slots]
    std::span<const std::int32_t> top_tokens{};        // [slots, top]
    std::span<const float> top_logprobs{};             // [slots, top]
  };
  static constexpr auto keep_going = [](std::int64_t) { return true; };
  struct Row {
    std::span<const std::int32_t> tokens{};
    std::int64_t start = 0;
    SamplingRow sampling{};
    SampleRng rng{};
  };

  Decoder(Transformer model, const DecoderOptions& options)
      : model_(std::move(model)), options_(options) {}
  Result<std::shared_ptr<const Plan>> make(std::int64_t slots, std::int64_t chunk) const;
  Result<Runner> bind(const std::shared_ptr<const Plan>& plan, std::int64_t first,
                      std::int64_t slots, std::int64_t chunk, const Tensor& rope_table) const;
  Status make_rope_tables();
  Status cover(RopeTable& table, std::int64_t length) const;
  RopeTable& steps_rope_table() { return steps_rope_ ? *steps_rope_ : rope_; }
  Result<std::shared_ptr<const Plan>> prefill_plan(std::int64_t chunk);
  Status make_decode_plan();
  Result<Runner*> prefill_runner(std::int64_t slot, std::int64_t chunk);
  Result<Runner*> decode_runner();
  std::int64_t next_chunk(std::int64_t left) const;
  Status check_slot(std::int64_t slot) const;
  Status check_prompt(std::span<const std::int32_t> tokens) const;
  Status rewind(std::int64_t slot, std::int64_t length);
  Result<DrawnToken> fill(std::int64_t slot, std::span<const std::int32_t> tokens,
                          const SamplingRow& sampling, const SampleRng& rng,
                          PrefillProgress progress);
  std::unexpected<Error> fail_fill(std::int64_t slot, Error error);
  DrawnToken read_drawn(const Runner& runner, std::int64_t index) const;
  static void set_row(const Runner& runner, std::int64_t index, const Row& row);

  Transformer model_;
  DecoderOptions options_;
  TransformerKvCache cache_;
  RopeTable rope_;  ///< Of prompts, and of steps where their lengths make no difference.
  std::optional<RopeTable> steps_rope_;                        ///< Where they make one.
  Tensor counts_;                                              ///< i32[slots, 2, V].
  std::map<std::int64_t, std::shared_ptr<const Plan>> plans_;  ///< Prefill plans by chunk.
  std::map<std::int64_t, Runner> prefill_runners_;             ///< Bound to prefill_slot_.
  std::int64_t prefill_slot_ = -1;
  std::shared_ptr<const Plan> decode_plan_;
  std::optional<Runner> decode_runner_;
  struct Slot {
    /// Whether the decode runner's row is to be skipped, was used, or waits to be used.
    enum class State : std::uint8_t { kIdle, kFed, kSet } state = State::kIdle;
    std::int32_t next = 0;             ///< The token that waits.
    std::vector<std::int32_t> tokens;  ///< What the cache holds, one a cached position.
    std::int64_t rotated_for = 0;      ///< The longest prompt that any of them came with.
  };
  std::vector<Slot> slots_;
};

/// Row counts a prefill chunk may have, largest first.
std::span<const std::int64_t> prefill_chunks();

}  // namespace volta
