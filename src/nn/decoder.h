// Decoder: a model with a KV cache for several sequences at once, each in its own slot. A step
// feeds tokens to any of them: one token to each slot that is being decoded, and pieces of prompts
// to other slots. It knows slots and tokens, not requests (see Generator).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "nn/kv_cache.h"
#include "nn/rope_table.h"
#include "nn/step_plans.h"
#include "nn/step_work.h"
#include "nn/transformer.h"

namespace [[gnu::visibility("default")]] volta {

struct DecoderOptions {
  std::int64_t slots = 1;     ///< Sequences at once.
  std::int64_t capacity = 0;  ///< Tokens that the cache holds per sequence; 0: the context.
  std::int64_t pages = 0;     ///< The most pages of a pool; 0: enough for all slots. See
                              ///< KvCacheSizes.
  std::optional<DType> cache_dtype{};  ///< Of the KV cache; nothing: what the device prefers.
  DType compute_dtype = DType::kF32;
  std::int32_t top = 0;        ///< How many of the likeliest tokens to report with a drawn one.
  bool prompts_first = false;  ///< See shared_step_rows().
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

/// Called with the number of prompt tokens that are cached, after each step but the last. If it
/// returns false, the prefill ends.
using PrefillProgress = FunctionRef<bool(std::int64_t done)>;

/// The most rows of a step in which `decoding` of the cache's sequences get one row each and
/// prompts get the other rows. With `prompts_first` this is at least the largest step. Without it,
/// a step has at most four times the rows of decoding alone, or twice `overhead_rows` if that is
/// more, but at most `fast_rows` as long as decoding takes half of these (see StepCosts); only if
/// decoding leaves fewer than 64 rows of the largest step, it may have more. Prompts always get at
/// least one row. How many rows a step really has depends on
/// their work, too: see Decoder::step().
std::int64_t shared_step_rows(std::int64_t decoding, const KvCacheSizes& sizes,
                              const StepCosts& costs, bool prompts_first);

class Decoder {
 public:
  static Result<Decoder> create(const Transformer& model, const DecoderOptions& options);

  std::int64_t slots() const { return cache_.slots(); }
  std::int64_t capacity() const { return cache_.capacity(); }
  const TransformerKvCache& cache() const { return cache_; }
  const Transformer& model() const { return model_; }

  /// Makes the plans for a prompt of `tokens` tokens by itself and for decoding after it. Plans for
  /// steps that do both are made when they are needed. Afterwards activation_bytes() is known,
  /// before anything runs.
  Status prepare(std::int64_t tokens);
  /// Resets the penalty counts of `slot` to the tokens (checked ids) of its prompt.
  Status set_counts(std::int64_t slot, std::span<const std::int32_t> tokens);
  /// Empties the slot and queues `tokens` (at least one, at most capacity(), checked ids). The
  /// following steps feed them to the slot, and the step with the last one draws the next token.
  /// The slot gets pages for `room` tokens (at most the capacity), or for `tokens` if those are
  /// more, and keeps them until set_idle(). So it can hold that many tokens, whatever other slots
  /// do. kOutOfMemory if too few pages are free; then nothing is queued.
  Status begin(std::int64_t slot, std::span<const std::int32_t> tokens, const SamplingRow& sampling,
               const SampleRng& rng, std::int64_t room = 0);
  /// Like begin(), but does not feed again what the slot already holds of the beginning of
  /// `tokens`. The result has the same bits, as long as the model's weights have not changed.
  Status resume(std::int64_t slot, std::span<const std::int32_t> tokens,
                const SamplingRow& sampling, const SampleRng& rng, std::int64_t room = 0);
  /// Whether begin() and resume() would find pages for `room` tokens in this slot if all slots for
  /// which `given_up` returns true were emptied first.
  bool has_room(std::int64_t slot, std::int64_t room,
                FunctionRef<bool(std::int64_t slot)> given_up) const;
  /// The number of tokens that resume() would not feed again.
  std::int64_t reusable(std::int64_t slot, std::span<const std::int32_t> tokens) const;
  /// Queues the token that the next step feeds to `slot`, in place of what was queued. kOutOfMemory
  /// if the token needs a page and none is free; then nothing is queued.
  Status set_next(std::int64_t slot, std::int32_t token, const SamplingRow& sampling,
                  const SampleRng& rng);
  /// Removes what is queued for `slot`. It keeps the tokens that it holds, and only their pages.
  Status set_idle(std::int64_t slot);
  /// Like set_idle(), but also empties the slot and frees its pages.
  Status forget(std::int64_t slot);
  /// The number of tokens that are queued for a slot.
  std::int64_t waiting(std::int64_t slot) const;

  /// Runs one step. It feeds the token of set_next() to every slot that has one and, in the order
  /// in which they began, pieces of prompts to other slots. If slots are being decoded, the number
  /// of prompt rows is chosen so that the step is predicted to take at most four times as long as
  /// without them. So there are fewer rows if a prompt attends to many earlier tokens. See StepWork
  /// and shared_step_rows(). Does nothing if nothing is queued. After an error every slot is as
  /// before.
  Status step();
  /// The token that the last step drew for a slot; its id is -1 if the step drew none.
  Result<DrawnToken> drawn(std::int64_t slot) const;
  /// The number of rows in the plan of the last step.
  std::int64_t step_rows() const { return last_ == nullptr ? 0 : last_->size.rows; }

  /// Calls begin() or resume(), and steps until the token after the prompt is drawn. kInterrupted
  /// if `progress` returns false.
  Result<DrawnToken> prefill(std::int64_t slot, std::span<const std::int32_t> tokens,
                             const SamplingRow& sampling, const SampleRng& rng,
                             PrefillProgress progress = keep_going);
  Result<DrawnToken> extend(std::int64_t slot, std::span<const std::int32_t> tokens,
                            const SamplingRow& sampling, const SampleRng& rng,
                            PrefillProgress progress = keep_going);

  /// Bytes of the arena that the plans share, and the number of plans made so far.
  std::int64_t activation_bytes() const { return plans_.activation_bytes(); }
  std::int64_t plan_count() const { return plans_.count(); }

 private:
  static constexpr auto keep_going = [](std::int64_t) { return true; };
  struct Slot {
    /// The tokens in the cache, one per position, and then the queued ones.
    std::vector<std::int32_t> tokens;
    std::int64_t prompt = 0;       ///< The length of the prompt in `tokens`; 0 after set_next().
    std::int64_t rotated_for = 0;  ///< The length of the longest prompt that any of them came with.
    std::int64_t turn = 0;         ///< The prompt with the smallest number goes first.
    std::int64_t drawn = -1;       ///< The slot's row of the last step's results; -1: none.
    SamplingRow sampling{};
    SampleRng rng{};
  };
  /// The rows that a step feeds to a slot.
  struct Piece {
    std::int64_t slot = 0;
    std::int64_t rows = 0;
  };

  Decoder(Transformer model, const DecoderOptions& options)
      : model_(std::move(model)), options_(options) {}
  Slot& at(std::int64_t slot) { return slots_[static_cast<std::size_t>(slot)]; }
  const Slot& at(std::int64_t slot) const { return slots_[static_cast<std::size_t>(slot)]; }
  Status make_rope_tables();
  Status cover_steps(std::int64_t length);
  bool takes_prompt_rope(const Slot& slot) const;
  Result<bool> take_prompt_rope(std::int64_t slot);
  Status check_slot(std::int64_t slot) const;
  Status check_prompt(std::span<const std::int32_t> tokens) const;
  Status rewind(std::int64_t slot, std::int64_t length);
  void drop_waiting(std::int64_t slot);
  Status queue(std::int64_t slot, std::span<const std::int32_t> tokens, const SamplingRow& sampling,
               const SampleRng& rng, std::int64_t room);
  std::unexpected<Error> no_pages(std::int64_t slot) const;
  Result<DrawnToken> run_prompt(std::int64_t slot, PrefillProgress progress);
  Status choose_pieces();
  Status list_prompts(std::int64_t most_rows);
  std::int64_t prompt_rows(std::int64_t most_rows) const;
  std::int64_t rows_within(double work, std::int64_t most_rows) const;
  std::int64_t next_prompt(std::int64_t turn) const;
  Result<StepRunner*> runner_for_pieces();
  void write_rows(StepRunner& runner);
  void write_tables(StepRunner& runner, std::int64_t slot, std::int64_t positions) const;
  DrawnToken read_drawn(const StepRunner& runner, std::size_t row) const;

  Transformer model_;
  DecoderOptions options_;
  TransformerKvCache cache_;
  /// The table that the plans read: the rows of steps_rope_ and, if angles depend on the length of
  /// a sequence, as many rows of prompt_rope_ after them.
  Tensor rope_;
  std::optional<RopeTable> steps_rope_;
  std::optional<RopeTable> prompt_rope_;
  std::optional<RopeTable> local_rope_;  ///< Of layers with a base of their own.
  std::int64_t prompt_rope_slot_ = -1;   ///< The slot whose prompt is being read with prompt_rope_;
                                         ///< -1: none.
  Tensor counts_;                        ///< i32[slots, 2, V].
  StepPlans plans_;
  std::vector<Slot> slots_;
  std::int64_t turns_ = 0;
  StepWork work_;
  StepCosts costs_;             ///< Of the device, for this model.
  std::vector<Piece> pieces_;   ///< Of the current step.
  std::vector<Piece> prompts_;  ///< The prompts that the step may read, the oldest first.
  StepRunner* last_ = nullptr;  ///< Holds the results of the last step.
};

}  // namespace volta
