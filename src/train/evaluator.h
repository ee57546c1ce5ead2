// Evaluator: the loss of a model over held-out text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "nn/sequence_scorer.h"
#include "nn/transformer.h"
#include "train/data.h"

namespace [[gnu::visibility("default")]] volta {

/// What a text has cost so far.
struct TextScore {
  double nats = 0.0;         ///< Sum of -log p over the scored tokens.
  std::int64_t tokens = 0;   ///< Scored.
  std::int64_t windows = 0;  ///< Done.
};

/// Asked before every batch of windows, of so many in all; false ends the evaluation.
using ScoreCallback = std::function<bool(const TextScore& so_far, std::int64_t windows)>;

class Evaluator {
 public:
  /// Evaluates `batch` sequences of `time` tokens at once. Shares the model's weights, so that it
  /// sees every update.
  static Result<Evaluator> create(const Transformer& model, std::int64_t batch, std::int64_t time,
                                  DType compute_dtype = DType::kF32);

  /// Mean over `batches` batches of a source (for an estimate during training). kNonFinite when it
  /// is not a number.
  Result<double> mean_loss(const BatchSource& source, std::int64_t step, std::int64_t batches);
  /// Mean over all non-overlapping windows of `time` tokens of the text; a rest shorter than
  /// time + 1 tokens is left out. `should_stop` is asked before every batch. kInvalidArgument when
  /// there is no window, kNonFinite, kInterrupted when should_stop said so.
  Result<double> mean_loss(std::span<const std::int32_t> tokens,
                           const std::function<bool()>& should_stop = {});
  /// Every token of the text but the first, each once: windows of `time` tokens begin `stride`
  /// tokens apart, and each scores what none before it has (the last `stride` of its targets, the
  /// first window all). So every token but those of the first window is predicted from at least
  /// time - stride + 1 tokens. The last window may be shorter. kInvalidArgument for fewer than two
  /// tokens, a stride outside [1, time] or a token that the model does not have (with its place);
  /// kNonFinite; kInterrupted when `go_on` said no.
  Result<TextScore> score(std::span<const std::int32_t> tokens, std::int64_t stride,
                          const ScoreCallback& go_on = {});

  std::int64_t activation_bytes() const { return scorer_.activation_bytes(); }

 private:
  Evaluator(SequenceScorer scorer, std::int64_t vocab, std::int64_t batch, std::int64_t time);

  /// Runs ids_ and targets_; adds the losses of the rows that have targets.
  Status run(TextScore& score);
  /// Puts the window that begins at `begin` into row `row`; its targets before `scored` are known.
  void put_window(std::span<const std::int32_t> tokens, std::size_t begin, std::size_t scored,
                  std::size_t row);

  SequenceScorer scorer_;
  std::int64_t vocab_ = 0;
  std::int64_t batch_ = 1;
  std::int64_t time_ = 1;
  std::vector<std::int32_t> ids_;
  std::vector<std::int32_t> targets_;
  std::vector<float> losses_;
};

}  // namespace volta
