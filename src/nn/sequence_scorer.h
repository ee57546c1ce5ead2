// SequenceScorer runs whole sequences without a cache, for evaluation. The blocks run over all
// tokens at once. The output projection runs over a few rows at a time, so that the logits of a
// large vocabulary are never in memory all at once. It knows token ids, not texts or files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "nn/transformer.h"

namespace [[gnu::visibility("default")]] volta {

/// What is computed for every row: its logits, or the loss of one target.
enum class Score : std::uint8_t { kLogits, kLoss };

struct SequenceScorerOptions {
  Score score = Score::kLogits;
  std::int64_t batch = 1;  ///< Sequences at once.
  std::int64_t time = 1;   ///< Tokens of each.
  DType compute_dtype = DType::kF32;
};

/// Receives the logits f32[rows, vocab] of consecutive rows. They are valid only during the call.
using LogitsSink = std::function<Status(std::span<const float>)>;

class SequenceScorer {
 public:
  /// Shares the model's weights, and therefore sees every update. kInvalidArgument for sizes below
  /// 1 or sequences longer than the context.
  static Result<SequenceScorer> create(const Transformer& model,
                                       const SequenceScorerOptions& options);

  /// Passes the logits of the first `rows` rows of ids [batch, time] (checked ids) to `sink`, in
  /// order and in several calls. An error of `sink` ends the computation. Needs Score::kLogits.
  Status logits(std::span<const std::int32_t> ids, std::int64_t rows, const LogitsSink& sink);
  /// losses[i] = -log p(targets[i] | the ids of its sequence up to i); all are [batch, time]. The
  /// loss is 0 if the target is negative; then the row is not projected. Needs Score::kLoss.
  Status losses(std::span<const std::int32_t> ids, std::span<const std::int32_t> targets,
                std::span<float> losses);

  /// Bytes of the arenas of its two plans.
  std::int64_t activation_bytes() const {
    return body_->plan().arena_bytes + head_->plan().arena_bytes;
  }

 private:
  explicit SequenceScorer(Transformer model) : model_(std::move(model)) {}

  Status run_body(std::span<const std::int32_t> ids);
  Status run_head();

  Transformer model_;
  std::int64_t piece_ = 1;  ///< Rows per run of the head.
  std::optional<Executable> body_;
  std::optional<Executable> head_;
  std::vector<std::int32_t> rows_;     ///< Rows of the body's output for the head's next run,
  std::vector<std::int32_t> targets_;  ///< and the target of each.
  std::vector<float> losses_;
};

/// Passes the logits of ids [batch, time] to `sink`, row after row and in several calls. An error
/// of `sink` ends the computation. Sequences run in groups, so that memory grows only with `time`.
/// kInvalidArgument for sizes that do not agree, a `time` beyond the context, or an id outside the
/// vocabulary (with its position); kNonFinite for a logit that is not finite, with its position.
Status compute_logits(const Transformer& model, std::span<const std::int32_t> ids,
                      std::int64_t batch, std::int64_t time, DType compute_dtype,
                      const LogitsSink& sink);

}  // namespace volta
