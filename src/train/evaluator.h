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

/// The score of a text so far.
struct TextScore {
  double nats = 0.0;         ///< Sum of -log p over the scored tokens.
  std::int64_t tokens = 0;   ///< Tokens scored.
  std::int64_t windows = 0;  ///< Windows done.
};

/// Called before every batch of windows with the score so far and the number of all windows.
/// Returning false ends the evaluation.
using ScoreCallback = std::function<bool(const TextScore& so_far, std::int64_t windows)>;

class Evaluator {
 public:
  /// Evaluates `batch` sequences of `time` tokens at once. The evaluator shares the model's weights
  /// and therefore sees every update.
  static Result<Evaluator> create(const Transformer& model, std::int64_t batch, std::int64_t time,
                                  DType compute_dtype = DType::kF32);

  /// The mean loss over `batches` batches of a source (for an estimate during training). kNonFinite
  /// when it is not finite.
  Result<double> mean_loss(const BatchSource& source, std::int64_t step, std::int64_t batches);
  /// The mean loss over the targets of the first `most` rows. `should_stop` is called before every
  /// batch. kInvalidArgument when the rows are not `time` tokens long or have no target;
  /// kNonFinite; kInterrupted when `should_stop` returns true.
  Result<double> mean_loss(const LabelledRows& rows, std::int64_t most,
                           const std::function<bool()>& should_stop = {});
  /// The mean loss over all non-overlapping windows of `time` tokens of the text. Tokens at the end
  /// that do not fill a window are left out. `should_stop` is called before every batch.
  /// kInvalidArgument when the text is too short for one window, kNonFinite, kInterrupted when
  /// `should_stop` returns true.
  Result<double> mean_loss(std::span<const std::int32_t> tokens,
                           const std::function<bool()>& should_stop = {});
  /// Scores every token of the text but the first, each once. Windows of `time` tokens begin
  /// `stride` tokens apart. The first window scores all its targets; every later one scores only
  /// those that no earlier window has scored (its last `stride`). So every token after the first
  /// window is predicted from at least time - stride + 1 tokens. The last window may be shorter.
  /// kInvalidArgument for fewer than two tokens, a stride outside [1, time] or a token outside the
  /// model's vocabulary (with its position); kNonFinite; kInterrupted when `go_on` returns false.
  Result<TextScore> score(std::span<const std::int32_t> tokens, std::int64_t stride,
                          const ScoreCallback& go_on = {});

  std::int64_t activation_bytes() const { return scorer_.activation_bytes(); }

 private:
  Evaluator(SequenceScorer scorer, std::int64_t vocab, std::int64_t batch, std::int64_t time);

  /// Computes the losses of ids_ and targets_, and adds those of the positions that have a target.
  Status run(TextScore& score);
  /// Copies the window that begins at `begin` into row `row`. An earlier window has scored the
  /// tokens before `scored`, so they are no targets here.
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
