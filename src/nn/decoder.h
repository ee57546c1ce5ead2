// Decoder: a model with a KV cache for some sequences at once, a slot each. A step feeds tokens to
// any of them: one to each that is being decoded, and pieces of the prompts of others beside. Knows
// slots and tokens, not requests (see Generator).
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
  std::int64_t capacity = 0;  ///< Cache capacity of a sequence in tokens; 0: the context.
  std::int64_t pages = 0;     ///< Of a pool at most; 0: what all slots may need. See KvCacheSizes.
  DType cache_dtype = DType::kF32;
  DType compute_dtype = DType::kF32;
  std::int32_t top = 0;        ///< How many of the likeliest tokens a drawn one comes with.
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

/// Hears how many tokens of a prompt are cached, after each step but the last; false ends the
/// prefill there.
using PrefillProgress = FunctionRef<bool(std::int64_t done)>;

/// The most rows of a step in which `decoding` of `slots` sequences get one row each and prompts
/// get the other rows. With `prompts_first` this is at least the largest step. Without it, a step
/// has at most four times the rows of decoding alone, or 16 if that is more; only with more than
/// 192 sequences decoding it may have more. Prompts always get at least one row. How many rows a
/// step really has depends on their work, too: see Decoder::step().
std::int64_t shared_step_rows(std::int64_t decoding, std::int64_t slots, bool prompts_first);

class Decoder {
 public:
  static Result<Decoder> create(const Transformer& model, const DecoderOptions& options);

  std::int64_t slots() const { return cache_.slots(); }
  std::int64_t capacity() const { return cache_.capacity(); }
  const TransformerKvCache& cache() const { return cache_; }
  const Transformer& model() const { return model_; }

  /// Makes the plans that a prompt of `tokens` tokens by itself and decoding after it need. Steps
  /// that do both make theirs when they come. activation_bytes() is known then, before anything
  /// runs.
  Status prepare(std::int64_t tokens);
  /// Begins the penalties of `slot` anew with the tokens (checked ids) of its prompt.
  Status set_counts(std::int64_t slot, std::span<const std::int32_t> tokens);
  /// Forgets the slot; the steps that follow feed it `tokens` (at least one, at most capacity(),
  /// checked ids), and the one with the last of them draws the token that comes next. The slot gets
  /// pages for `room` tokens (at most the capacity), or for `tokens` if those are more, and keeps
  /// them until set_idle(): so many tokens it can hold, whatever other slots do. kOutOfMemory, and
  /// nothing waits, when too few pages are free.
  Status begin(std::int64_t slot, std::span<const std::int32_t> tokens, const SamplingRow& sampling,
               const SampleRng& rng, std::int64_t room = 0);
  /// The same, but what the slot already holds of the beginning of `tokens` is not fed again. The
  /// result has the same bits, as long as the model's weights have not changed.
  Status resume(std::int64_t slot, std::span<const std::int32_t> tokens,
                const SamplingRow& sampling, const SampleRng& rng, std::int64_t room = 0);
  /// Whether begin() and resume() would find pages for `room` tokens in this slot, if all slots for
  /// which `given_up` is true were forgotten first.
  bool has_room(std::int64_t slot, std::int64_t room,
                FunctionRef<bool(std::int64_t slot)> given_up) const;
  /// How many tokens resume() would not feed again.
  std::int64_t reusable(std::int64_t slot, std::span<const std::int32_t> tokens) const;
  /// What the next step feeds to `slot`, in place of what waited for it. kOutOfMemory, and nothing
  /// waits, when the token needs a page and none is free.
  Status set_next(std::int64_t slot, std::int32_t token, const SamplingRow& sampling,
                  const SampleRng& rng);
  /// Nothing waits for `slot` any more; it keeps what it holds, and no pages beyond that.
  Status set_idle(std::int64_t slot);
  /// The same, and the slot is empty: its pages are free.
  Status forget(std::int64_t slot);
  /// Tokens that steps are still to feed to a slot.
  std::int64_t waiting(std::int64_t slot) const;

  /// Runs once: feeds every slot the token that set_next() gave it and, in the order in which they
  /// began, pieces of prompts to others. Beside slots that are being decoded, these have so many
  /// rows that the step is predicted to take four times as long as it would without them: fewer the
  /// further back a prompt looks. See StepWork and shared_step_rows(). Does nothing when nothing
  /// waits. After an error every slot is as before.
  Status step();
  /// What the last step drew for a slot; token -1 if it drew nothing.
  Result<DrawnToken> drawn(std::int64_t slot) const;
  /// Rows of the last step, as its plan has them.
  std::int64_t step_rows() const { return last_ == nullptr ? 0 : last_->size.rows; }

  /// begin() or resume(), and steps until the token after the prompt is drawn. kInterrupted when
  /// `progress` says so.
  Result<DrawnToken> prefill(std::int64_t slot, std::span<const std::int32_t> tokens,
                             const SamplingRow& sampling, const SampleRng& rng,
                             PrefillProgress progress = keep_going);
  Result<DrawnToken> extend(std::int64_t slot, std::span<const std::int32_t> tokens,
                            const SamplingRow& sampling, const SampleRng& rng,
                            PrefillProgress progress = keep_going);

  /// Bytes of the arena in which all plans work, and the number of plans made so far.
  std::int64_t activation_bytes() const { return plans_.activation_bytes(); }
  std::int64_t plan_count() const { return plans_.count(); }

 private:
  static constexpr auto keep_going = [](std::int64_t) { return true; };
  struct Slot {
    /// What the cache holds, one a cached position, and then what waits.
    std::vector<std::int32_t> tokens;
    std::int64_t prompt = 0;       ///< So many of them are a prompt; 0 once set_next() was called.
    std::int64_t rotated_for = 0;  ///< The longest prompt that any of them came with.
    std::int64_t turn = 0;         ///< Prompts that began earlier go first.
    std::int64_t drawn = -1;       ///< Its row of the last step's results.
    SamplingRow sampling{};
    SampleRng rng{};
  };
  /// What a step feeds to a slot.
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
  /// What the plans read: the rows of steps_rope_ and, where angles depend on the length of a
  /// sequence, as many again of prompt_rope_.
  Tensor rope_;
  std::optional<RopeTable> steps_rope_;
  std::optional<RopeTable> prompt_rope_;
  std::optional<RopeTable> local_rope_;  ///< Of layers with a base of their own.
  std::int64_t prompt_rope_slot_ = -1;   ///< Whose prompt it is for, on its way into the cache.
  Tensor counts_;                        ///< i32[slots, 2, V].
  StepPlans plans_;
  std::vector<Slot> slots_;
  std::int64_t turns_ = 0;
  StepWork work_;
  std::vector<Piece> pieces_;   ///< Of the step that runs.
  std::vector<Piece> prompts_;  ///< The pieces of prompts that it may take, the oldest first.
  StepRunner* last_ = nullptr;  ///< Whose results are those of the last step.
};

}  // namespace volta
