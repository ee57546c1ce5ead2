#include "train/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/arithmetic.h"

namespace volta {
namespace {

Status check_finite_loss(const TextScore& score) {
  if (std::isfinite(score.nats)) return {};
  return fail(
      ErrorCode::kNonFinite,
      fmt::format("the mean loss over {} tokens is {}: the model's weights or logits are "
                  "not finite; take an earlier checkpoint, or train with a lower learning "
                  "rate",
                  score.tokens, std::isnan(score.nats) ? std::fabs(score.nats) : score.nats));
}

Result<double> finite_mean(const TextScore& score) {
  VOLTA_TRY(check_finite_loss(score));
  return score.nats / static_cast<double>(score.tokens);
}

Status check_tokens(std::span<const std::int32_t> tokens, std::int64_t vocab) {
  const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                [&](std::int32_t id) { return id < 0 || id >= vocab; });
  if (bad == tokens.end()) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("token {} is {}; the model's vocabulary has ids 0 to {}: the tokenizer "
                          "is another model's",
                          bad - tokens.begin(), *bad, vocab - 1));
}

std::unexpected<Error> broken_off(std::size_t done, std::size_t windows) {
  return fail(ErrorCode::kInterrupted,
              fmt::format("evaluation interrupted after {} of {} windows", done, windows));
}

}  // namespace

Evaluator::Evaluator(SequenceScorer scorer, std::int64_t vocab, std::int64_t batch,
                     std::int64_t time)
    : scorer_(std::move(scorer)), vocab_(vocab), batch_(batch), time_(time) {
  const auto tokens = static_cast<std::size_t>(batch * time);
  ids_.resize(tokens);
  targets_.resize(tokens);
  losses_.resize(tokens);
}

Result<Evaluator> Evaluator::create(const Transformer& model, std::int64_t batch, std::int64_t time,
                                    DType compute_dtype) {
  const SequenceScorerOptions options{
      .score = Score::kLoss, .batch = batch, .time = time, .compute_dtype = compute_dtype};
  VOLTA_TRY(SequenceScorer scorer, SequenceScorer::create(model, options));
  return Evaluator(std::move(scorer), model.config().vocab_size, batch, time);
}

Status Evaluator::run(TextScore& score) {
  VOLTA_TRY(scorer_.losses(ids_, targets_, losses_));
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    if (targets_[i] < 0) continue;
    score.nats += static_cast<double>(losses_[i]);
    ++score.tokens;
  }
  return {};
}

Result<double> Evaluator::mean_loss(const BatchSource& source, std::int64_t step,
                                    std::int64_t batches) {
  if (batches < 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("evaluation over {} batches; it must be at least 1", batches));
  }
  TextScore score;
  for (std::int64_t i = 0; i < batches; ++i) {
    VOLTA_TRY(source.fill(step, i, ids_, targets_));
    VOLTA_TRY(run(score));
  }
  return finite_mean(score);
}

Result<double> Evaluator::mean_loss(std::span<const std::int32_t> tokens,
                                    const std::function<bool()>& should_stop) {
  const auto time = static_cast<std::size_t>(time_);
  const std::size_t windows = tokens.empty() ? 0 : (tokens.size() - 1) / time;
  if (windows == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the validation text has {} tokens; a context of {} needs at least {}",
                            tokens.size(), time, time + 1));
  }
  const auto go_on = [&](const TextScore&, std::int64_t) { return !should_stop || !should_stop(); };
  VOLTA_TRY(const TextScore all, score(tokens.first(windows * time + 1), time_, go_on));
  return finite_mean(all);
}

Result<double> Evaluator::mean_loss(const LabelledRows& rows, std::int64_t most,
                                    const std::function<bool()>& should_stop) {
  const auto time = static_cast<std::size_t>(time_);
  const auto batch = static_cast<std::size_t>(batch_);
  const auto count = static_cast<std::size_t>(std::min(rows.count, most));
  TextScore score;
  for (std::size_t first = 0; rows.time == time_ && first < count; first += batch) {
    if (should_stop && should_stop()) return broken_off(first / batch, ceil_div(count, batch));
    const std::size_t used = std::min(batch, count - first) * time;
    std::copy_n(std::span(rows.ids).subspan(first * time).begin(), used, ids_.begin());
    std::copy_n(std::span(rows.targets).subspan(first * time).begin(), used, targets_.begin());
    // The rest of the last batch has ids of an earlier one, and no targets.
    std::ranges::fill(std::span(targets_).subspan(used), -1);
    VOLTA_TRY(run(score));
  }
  if (score.tokens == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("evaluation: {} rows of {} tokens have no target for windows of {}",
                            rows.count, rows.time, time_));
  }
  return finite_mean(score);
}

void Evaluator::put_window(std::span<const std::int32_t> tokens, std::size_t begin,
                           std::size_t scored, std::size_t row) {
  const auto time = static_cast<std::size_t>(time_);
  const std::size_t length = std::min(time, tokens.size() - 1 - begin);
  const auto ids = std::span(ids_).subspan(row * time);
  const auto targets = std::span(targets_).subspan(row * time);
  for (std::size_t i = 0; i < length; ++i) {
    ids[i] = tokens[begin + i];
    targets[i] = begin + i + 1 < scored ? -1 : tokens[begin + i + 1];
  }
}

Result<TextScore> Evaluator::score(std::span<const std::int32_t> tokens, std::int64_t stride,
                                   const ScoreCallback& go_on) {
  if (tokens.size() < 2 || stride < 1 || stride > time_) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("evaluation of {} tokens in steps of {}; it needs two tokens at least, "
                            "and steps from 1 to the window's {}",
                            tokens.size(), stride, time_));
  }
  VOLTA_TRY(check_tokens(tokens, vocab_));
  const auto time = static_cast<std::size_t>(time_);
  const auto step = static_cast<std::size_t>(stride);
  const std::size_t targets = tokens.size() - 1;
  const std::size_t windows = 1 + (targets > time ? ceil_div(targets - time, step) : 0);
  const auto batch = static_cast<std::size_t>(batch_);
  TextScore score;
  for (std::size_t first = 0; first < windows; first += batch) {
    score.windows = static_cast<std::int64_t>(first);
    if (go_on && !go_on(score, static_cast<std::int64_t>(windows))) {
      return broken_off(first, windows);
    }
    std::fill(ids_.begin(), ids_.end(), 0);
    std::fill(targets_.begin(), targets_.end(), -1);
    for (std::size_t row = 0; row < batch && first + row < windows; ++row) {
      const std::size_t begin = (first + row) * step;
      put_window(tokens, begin, begin == 0 ? 1 : begin - step + time + 1, row);
    }
    auto ran = run(score);
    if (!ran && ran.error().code() == ErrorCode::kInterrupted) {
      return broken_off(first, windows);
    }
    VOLTA_TRY(std::move(ran));
  }
  score.windows = static_cast<std::int64_t>(windows);
  VOLTA_TRY(check_finite_loss(score));
  return score;
}

}  // namespace volta
