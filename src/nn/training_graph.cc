#include "nn/training_graph.h"

#include <fmt/format.h>

#include <span>
#include <vector>

namespace volta {
namespace {

// All parameters in their fixed order, as values of a graph that uses each of them.
Result<std::vector<ValueId>> trained(Graph& graph, std::span<const ParameterInfo> infos) {
  std::vector<ValueId> values;
  for (const ParameterInfo& info : infos) {
    VOLTA_TRY(const ValueId value, model_parameter(graph, info.name, info.shape));
    values.push_back(value);
  }
  return values;
}

// The loss of a batch from the losses of its tokens, as one element.
Result<ValueId> batch_loss(Graph& graph, ValueId token_loss, bool masked) {
  const Reduce over_batch{masked ? ReduceKind::kSum : ReduceKind::kMean, 0, 2};
  VOLTA_TRY(const ValueId total, graph.add_one(over_batch, {token_loss}));
  VOLTA_TRY(const ValueId loss, graph.add_one(Reshape{Shape(1)}, {total}));
  if (!masked) return loss;
  VOLTA_TRY(const ValueId scale, graph.input("loss_scale", {DType::kF32, Shape(1)}));
  return graph.add_one(Binary{BinaryKind::kMul}, {loss, scale});
}

// Mean cross entropy over the targets of the batch, and the gradients of every parameter.
struct Backward {
  ValueId loss;
  std::vector<ValueId> gradients;
};
Result<Backward> build_backward(Graph& graph, const TransformerConfig& config,
                                const TrainingGraphOptions& options) {
  VOLTA_TRY(const ValueId logits, build_logits(graph, config, options.batch, options.time,
                                               options.dropout, options.lora));
  VOLTA_TRY(const ValueId targets,
            graph.input("targets", {DType::kI32, Shape(options.batch, options.time)}));
  graph.set_scope("loss");
  VOLTA_TRY(const ValueId token_loss, graph.add_one(CrossEntropy{}, {logits, targets}));
  Backward out;
  VOLTA_TRY(out.loss, batch_loss(graph, token_loss, options.masked));
  const std::vector<ParameterInfo> infos = trained_parameters(config, options.lora);
  VOLTA_TRY(const auto values, trained(graph, infos));
  VOLTA_TRY(out.gradients, differentiate(graph, out.loss, values));
  return out;
}

// Adds one optimiser node per parameter.
Status add_updates(Graph& graph, const TransformerConfig& config,
                   const TrainingGraphOptions& options, std::span<const ValueId> gradients,
                   ValueId stats) {
  VOLTA_TRY(const ValueId schedule, graph.input("schedule", {DType::kF32, Shape(3)}));
  const OptimizerConfig& optimizer = options.optimizer;
  std::size_t i = 0;
  for (const ParameterInfo& info : trained_parameters(config, options.lora)) {
    const ValueId gradient = gradients[i++];
    VOLTA_TRY(const ValueId w, model_parameter(graph, info.name, info.shape));
    const TensorSpec spec{DType::kF32, info.shape};
    const float decay = info.decay() ? optimizer.weight_decay : 0.0f;
    if (optimizer.kind == OptimizerConfig::Kind::kAdamW) {
      VOLTA_TRY(const ValueId m, graph.state("adam.m." + info.name, spec));
      VOLTA_TRY(const ValueId v, graph.state("adam.v." + info.name, spec));
      const AdamW op{optimizer.beta1, optimizer.beta2, optimizer.eps, decay};
      VOLTA_TRY(graph.add(op, std::vector{w, gradient, m, v, schedule, stats}));
    } else if (optimizer.momentum != 0.0f) {
      VOLTA_TRY(const ValueId v, graph.state("sgd.v." + info.name, spec));
      VOLTA_TRY(
          graph.add(Sgd{optimizer.momentum, decay}, std::vector{w, gradient, v, schedule, stats}));
    } else {
      VOLTA_TRY(graph.add(Sgd{0.0f, decay}, std::vector{w, gradient, schedule, stats}));
    }
  }
  return {};
}

Status add_norm_and_updates(Graph& graph, const TransformerConfig& config,
                            const TrainingGraphOptions& options, ValueId loss,
                            std::span<const ValueId> gradients) {
  graph.set_scope("optimizer");
  std::vector<ValueId> inputs = {loss};
  inputs.insert(inputs.end(), gradients.begin(), gradients.end());
  VOLTA_TRY(const auto stats, graph.add(GlobalNorm{options.optimizer.clip}, inputs));
  VOLTA_TRY(graph.output("stats", stats.front()));
  return add_updates(graph, config, options, gradients, stats.front());
}

}  // namespace

Result<Graph> build_training_graph(const TransformerConfig& config,
                                   const TrainingGraphOptions& options) {
  Graph graph;
  VOLTA_TRY(const Backward backward, build_backward(graph, config, options));
  VOLTA_TRY(graph.output("loss", backward.loss));
  VOLTA_TRY(add_norm_and_updates(graph, config, options, backward.loss, backward.gradients));
  return graph;
}

Result<Graph> build_accumulate_graph(const TransformerConfig& config,
                                     const TrainingGraphOptions& options) {
  if (options.accumulate < 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("accumulate is {}; it must be at least 1", options.accumulate));
  }
  Graph graph;
  VOLTA_TRY(const Backward backward, build_backward(graph, config, options));
  VOLTA_TRY(graph.output("loss", backward.loss));
  const double parts = options.masked ? 1.0 : static_cast<double>(options.accumulate);
  const Accumulate add{static_cast<float>(1.0 / parts)};
  graph.set_scope("accumulate");
  VOLTA_TRY(const ValueId total, graph.state("grad.loss", {DType::kF32, Shape(1)}));
  VOLTA_TRY(graph.add(add, std::vector{total, backward.loss}));
  std::size_t i = 0;
  for (const ParameterInfo& info : trained_parameters(config, options.lora)) {
    VOLTA_TRY(const ValueId sum, graph.state("grad." + info.name, {DType::kF32, info.shape}));
    VOLTA_TRY(graph.add(add, std::vector{sum, backward.gradients[i++]}));
  }
  return graph;
}

Result<Graph> build_apply_graph(const TransformerConfig& config,
                                const TrainingGraphOptions& options) {
  VOLTA_TRY(validate(config));
  Graph graph;
  VOLTA_TRY(const ValueId loss, graph.state("grad.loss", {DType::kF32, Shape(1)}));
  std::vector<ValueId> gradients;
  for (const ParameterInfo& info : trained_parameters(config, options.lora)) {
    VOLTA_TRY(const ValueId gradient, graph.state("grad." + info.name, {DType::kF32, info.shape}));
    gradients.push_back(gradient);
  }
  VOLTA_TRY(add_norm_and_updates(graph, config, options, loss, gradients));
  graph.set_scope("reset");
  VOLTA_TRY(graph.add(Fill{0.0f}, std::vector{loss}));
  for (const ValueId gradient : gradients) {
    VOLTA_TRY(graph.add(Fill{0.0f}, std::vector{gradient}));
  }
  return graph;
}

}  // namespace volta
