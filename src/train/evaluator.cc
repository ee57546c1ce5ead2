#include "train/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "graph/passes.h"
#include "nn/transformer_graph.h"

namespace volta {
namespace {

Result<double> finite_mean(double sum, std::int64_t tokens) {
  const double mean = sum / static_cast<double>(tokens);
  if (std::isfinite(mean)) return mean;
  return fail(ErrorCode::kNonFinite,
              fmt::format("the mean loss over {} tokens is {}: the model's weights or logits are "
                          "not finite; take an earlier checkpoint, or train with a lower learning "
                          "rate",
                          tokens, std::isnan(mean) ? std::fabs(mean) : mean));
}

}  // namespace

Result<Evaluator> Evaluator::create(const Transformer& model, std::int64_t batch, std::int64_t time,
                                    DType compute_dtype) {
  if (batch < 1 || time < 1 || time > model.config().context) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("evaluation: {} sequences of {} tokens; both must be at least 1, and the "
                    "length at most the context of {}",
                    batch, time, model.config().context));
  }
  Device& device = *model.device();
  VOLTA_TRY(const Graph built,
            build_evaluation_graph(model.config(), batch, time, false, model.lora()));
  VOLTA_TRY(const Graph stored, model.with_stored_weights(built));
  VOLTA_TRY(const Graph graph, optimize(stored, device, {.compute_dtype = compute_dtype}));
  VOLTA_TRY(Plan plan, make_plan(graph, device));
  const auto lookup = [&](const PlanBinding& binding) -> Result<Tensor> {
    if (binding.kind == ValueKind::kInput) return Tensor::zeros(binding.spec, device.memory());
    return model.bind(binding);
  };
  Evaluator evaluator(model, batch, time);
  VOLTA_TRY(evaluator.bound_,
            BoundPlan::bind(std::make_shared<const Plan>(std::move(plan)), device, lookup));
  const auto tokens = static_cast<std::size_t>(batch * time);
  evaluator.ids_.resize(tokens);
  evaluator.targets_.resize(tokens);
  evaluator.losses_.resize(tokens);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(time));
  std::iota(positions.begin(), positions.end(), 0);
  VOLTA_TRY(Tensor input, evaluator.bound_->binding("positions"));
  VOLTA_TRY(input.write(std::span<const std::int32_t>(positions)));
  return evaluator;
}

Status Evaluator::run(double& sum, std::int64_t& tokens) {
  VOLTA_TRY(Tensor ids, bound_->binding("ids"));
  VOLTA_TRY(ids.write(std::span<const std::int32_t>(ids_)));
  VOLTA_TRY(Tensor targets, bound_->binding("targets"));
  VOLTA_TRY(targets.write(std::span<const std::int32_t>(targets_)));
  VOLTA_TRY(model_.device()->execute(*bound_));
  VOLTA_TRY(const Tensor losses, bound_->output("token_loss"));
  VOLTA_TRY(losses.read(std::span<float>(losses_)));
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    if (targets_[i] < 0) continue;
    sum += static_cast<double>(losses_[i]);
    ++tokens;
  }
  return {};
}

Result<double> Evaluator::mean_loss(const BatchSource& source, std::int64_t step,
                                    std::int64_t batches) {
  if (batches < 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("evaluation over {} batches; it must be at least 1", batches));
  }
  double sum = 0.0;
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < batches; ++i) {
    VOLTA_TRY(source.fill(step, i, ids_, targets_));
    VOLTA_TRY(run(sum, tokens));
  }
  return finite_mean(sum, tokens);
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
  double sum = 0.0;
  std::int64_t counted = 0;
  const auto batch = static_cast<std::size_t>(batch_);
  for (std::size_t first = 0; first < windows; first += batch) {
    if (should_stop && should_stop()) {
      return fail(ErrorCode::kInterrupted,
                  fmt::format("evaluation interrupted after {} of {} windows", first, windows));
    }
    std::fill(ids_.begin(), ids_.end(), 0);
    std::fill(targets_.begin(), targets_.end(), -1);
    for (std::size_t row = 0; row < batch && first + row < windows; ++row) {
      const auto window = tokens.subspan((first + row) * time, time + 1);
      std::copy_n(window.begin(), time, std::span(ids_).subspan(row * time).begin());
      std::copy_n(window.begin() + 1, time, std::span(targets_).subspan(row * time).begin());
    }
    VOLTA_TRY(run(sum, counted));
  }
  return finite_mean(sum, counted);
}

}  // namespace volta
