// Evaluator: the mean loss of a model over held-out text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "nn/transformer.h"
#include "train/data.h"

namespace volta {

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

  std::int64_t activation_bytes() const { return bound_->plan().arena_bytes; }

 private:
  Evaluator(Transformer model, std::int64_t batch, std::int64_t time)
      : model_(std::move(model)), batch_(batch), time_(time) {}

  /// Runs ids_ and targets_; adds the losses of the rows that have targets.
  Status run(double& sum, std::int64_t& tokens);

  Transformer model_;
  std::int64_t batch_ = 1;
  std::int64_t time_ = 1;
  std::optional<BoundPlan> bound_;
  std::vector<std::int32_t> ids_;
  std::vector<std::int32_t> targets_;
  std::vector<float> losses_;
};

}  // namespace volta
