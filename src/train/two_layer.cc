#include "train/two_layer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/rng.h"
#include "graph/graph.h"
#include "graph/passes.h"

namespace volta {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;
constexpr std::int64_t kMaxEpochs = std::int64_t{1} << 31;

struct Sizes {
  std::int64_t rows = 0;     // N
  std::int64_t inputs = 0;   // D
  std::int64_t hidden = 0;   // H
  std::int64_t outputs = 0;  // K
};

std::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, "two-layer training: " + std::move(message));
}

// Checks that a tensor is f32 with two non-empty axes and that every element is finite.
Status check_matrix(const Tensor& tensor, std::string_view what) {
  const Shape& shape = tensor.shape();
  if (tensor.dtype() != DType::kF32 || shape.rank() != 2 || shape.elements() < 1) {
    return invalid(fmt::format("{} is {}; it must be f32 with two non-empty axes", what,
                               to_string(tensor.spec())));
  }
  VOLTA_TRY(const Tensor host, tensor.clone_to());
  VOLTA_TRY(const std::span<const float> values, host.values<float>());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    const auto place = static_cast<std::int64_t>(i);
    return fail(ErrorCode::kNonFinite,
                fmt::format("two-layer training: {} holds {} at row {}, column {}; clean the data",
                            what, values[i], place / shape[1], place % shape[1]));
  }
  return {};
}

Status check_labels(const Tensor& labels, std::int64_t rows, std::int64_t classes) {
  if (labels.dtype() != DType::kI32 || labels.shape() != Shape(rows)) {
    return invalid(fmt::format("labels are {}; they must be i32[{}], one for each row of x",
                               to_string(labels.spec()), rows));
  }
  VOLTA_TRY(const Tensor host, labels.clone_to());
  VOLTA_TRY(const std::span<const std::int32_t> values, host.values<std::int32_t>());
  for (std::size_t row = 0; row < values.size(); ++row) {
    if (values[row] < 0 || values[row] >= classes) {
      return invalid(fmt::format("the label of row {} is {}; labels must be from 0 to {}", row,
                                 values[row], classes - 1));
    }
  }
  return {};
}

Status check_options(const std::shared_ptr<Device>& device, const TwoLayerOptions& o) {
  if (device == nullptr) return invalid("there is no device");
  if (o.hidden < 1 || o.hidden > kMaxSize) {
    return invalid(fmt::format("hidden is {}; it must be between 1 and {}", o.hidden, kMaxSize));
  }
  if (o.epochs < 1 || o.epochs > kMaxEpochs) {
    return invalid(fmt::format("epochs is {}; it must be between 1 and {}", o.epochs, kMaxEpochs));
  }
  if (!(o.learning_rate > 0.0f) || !std::isfinite(o.learning_rate)) {
    return invalid(fmt::format("learning_rate is {}; it must be positive", o.learning_rate));
  }
  return {};
}

enum class Loss { kCrossEntropy, kMeanSquaredError };

// Mean loss of y against the input "targets".
Result<ValueId> add_loss(Graph& graph, ValueId y, const Sizes& n, Loss loss) {
  if (loss == Loss::kCrossEntropy) {
    VOLTA_TRY(const ValueId labels, graph.input("targets", {DType::kI32, Shape(n.rows)}));
    VOLTA_TRY(const ValueId rows, graph.add_one(CrossEntropy{}, {y, labels}));
    return graph.add_one(Reduce{ReduceKind::kMean, 0, 1}, {rows});
  }
  VOLTA_TRY(const ValueId targets, graph.input("targets", {DType::kF32, Shape(n.rows, n.outputs)}));
  VOLTA_TRY(const ValueId error, graph.add_one(Binary{BinaryKind::kSub}, {y, targets}));
  VOLTA_TRY(const ValueId squares, graph.add_one(Unary{UnaryKind::kSquare}, {error}));
  return graph.add_one(Reduce{ReduceKind::kMean, 0, 2}, {squares});
}

// The graph of one update: forward, loss, backward, and plain SGD, which is skipped when a value is
// not finite.
Result<Graph> build_update(const Sizes& n, Loss loss_kind) {
  Graph graph;
  VOLTA_TRY(const ValueId x, graph.input("x", {DType::kF32, Shape(n.rows, n.inputs)}));
  const auto weight = [&](const char* name, const Shape& shape) {
    return graph.parameter(name, {DType::kF32, shape});
  };
  VOLTA_TRY(const ValueId w1, weight("w1", Shape(n.inputs, n.hidden)));
  VOLTA_TRY(const ValueId b1, weight("b1", Shape(n.hidden)));
  VOLTA_TRY(const ValueId w2, weight("w2", Shape(n.hidden, n.outputs)));
  VOLTA_TRY(const ValueId b2, weight("b2", Shape(n.outputs)));
  const MatMul dense{.has_bias = true};
  VOLTA_TRY(ValueId h, graph.add_one(dense, {x, w1, b1}));
  VOLTA_TRY(h, graph.add_one(Unary{UnaryKind::kRelu}, {h}));
  VOLTA_TRY(const ValueId y, graph.add_one(dense, {h, w2, b2}));
  VOLTA_TRY(ValueId loss, add_loss(graph, y, n, loss_kind));
  VOLTA_TRY(loss, graph.add_one(Reshape{Shape(1)}, {loss}));
  VOLTA_TRY(graph.output("loss", loss));
  const std::array weights = {w1, b1, w2, b2};
  VOLTA_TRY(const auto gradients, differentiate(graph, loss, weights));
  std::vector<ValueId> all = {loss};
  all.insert(all.end(), gradients.begin(), gradients.end());
  VOLTA_TRY(const auto stats, graph.add(GlobalNorm{}, all));
  VOLTA_TRY(graph.output("stats", stats.front()));
  VOLTA_TRY(const ValueId schedule, graph.input("schedule", {DType::kF32, Shape(3)}));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    VOLTA_TRY(graph.add(Sgd{}, std::vector{weights[i], gradients[i], schedule, stats.front()}));
  }
  return graph;
}

// A weight that is uniform in +-bound, from Philox(seed, stream) and thus the same on every device.
// A bound of 0 gives zeros.
Result<Tensor> make_weight(Device& device, const Shape& shape, double bound, std::uint64_t seed,
                           std::uint32_t stream) {
  VOLTA_TRY(Tensor host, Tensor::zeros({DType::kF32, shape}));
  VOLTA_TRY(const std::span<float> values, host.mutable_values<float>());
  std::uint64_t element = 0;
  for (float& value : values) {
    const float uniform = uniform_float(random_bits_at(seed, stream, 0, element++));
    value = static_cast<float>(bound * (2.0 * static_cast<double>(uniform) - 1.0));
  }
  return host.clone_to(device.memory());
}

Result<TwoLayerResult> make_weights(Device& device, const Sizes& n, std::uint64_t seed) {
  TwoLayerResult r;
  const double first = 1.0 / std::sqrt(static_cast<double>(n.inputs));
  const double second = 1.0 / std::sqrt(static_cast<double>(n.hidden));
  VOLTA_TRY(r.w1, make_weight(device, Shape(n.inputs, n.hidden), first, seed, 0));
  VOLTA_TRY(r.b1, make_weight(device, Shape(n.hidden), 0.0, seed, 1));
  VOLTA_TRY(r.w2, make_weight(device, Shape(n.hidden, n.outputs), second, seed, 2));
  VOLTA_TRY(r.b2, make_weight(device, Shape(n.outputs), 0.0, seed, 3));
  return r;
}

Result<Executable> load_update(Device& device, const Sizes& n, Loss loss,
                               std::map<std::string, Tensor> tensors) {
  VOLTA_TRY(const Graph built, build_update(n, loss));
  VOLTA_TRY(const Graph graph, optimize(built, device));
  VOLTA_TRY(Plan plan, make_plan(graph, device));
  for (auto& [name, tensor] : tensors) {
    if (tensor.buffer()->owner() != device.memory()) {
      VOLTA_TRY(tensor, tensor.clone_to(device.memory()));
    }
  }
  return device.load(
      std::make_shared<const Plan>(std::move(plan)),
      [&](const PlanBinding& binding) -> Result<Tensor> { return tensors[binding.name]; });
}

Result<TwoLayerResult> train(Device& device, const Tensor& x, const Tensor& targets, const Sizes& n,
                             Loss loss_kind, const TwoLayerOptions& options) {
  VOLTA_TRY(TwoLayerResult result, make_weights(device, n, options.seed));
  const std::array<float, 3> rates = {options.learning_rate, 1.0f, 1.0f};
  VOLTA_TRY(const Tensor schedule, Tensor::from_values(Shape(3), std::span<const float>(rates)));
  VOLTA_TRY(Executable update, load_update(device, n, loss_kind,
                                           {{"x", x},
                                            {"targets", targets},
                                            {"schedule", schedule},
                                            {"w1", result.w1},
                                            {"b1", result.b1},
                                            {"w2", result.w2},
                                            {"b2", result.b2}}));
  VOLTA_TRY(const Tensor loss_output, update.result("loss"));
  VOLTA_TRY(const Tensor stats_output, update.result("stats"));
  for (std::int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
    VOLTA_TRY(update.run());
    VOLTA_TRY(update.fetch());
    float loss = 0.0f;
    std::array<float, 3> stats{};
    VOLTA_TRY(loss_output.read(std::span(&loss, 1)));
    VOLTA_TRY(stats_output.read(std::span<float>(stats)));
    if (stats[2] == 0.0f) {
      return fail(ErrorCode::kNonFinite,
                  fmt::format("two-layer training: epoch {}: loss {}, gradient norm {}; lower the "
                              "learning rate or scale the data",
                              epoch, loss, stats[0]));
    }
    result.losses.push_back(loss);
  }
  return result;
}

}  // namespace

Result<TwoLayerResult> train_two_layer_classifier_ce_with_device(
    const std::shared_ptr<Device>& device, const Tensor& x, const Tensor& labels,
    std::int64_t classes, const TwoLayerOptions& options) {
  VOLTA_TRY(check_options(device, options));
  VOLTA_TRY(check_matrix(x, "x"));
  if (classes < 1 || classes > kMaxSize) {
    return invalid(fmt::format("classes is {}; it must be between 1 and {}", classes, kMaxSize));
  }
  VOLTA_TRY(check_labels(labels, x.shape()[0], classes));
  const Sizes sizes{x.shape()[0], x.shape()[1], options.hidden, classes};
  return train(*device, x, labels, sizes, Loss::kCrossEntropy, options);
}

Result<TwoLayerResult> train_two_layer_classifier_mse_with_device(
    const std::shared_ptr<Device>& device, const Tensor& x, const Tensor& targets,
    const TwoLayerOptions& options) {
  VOLTA_TRY(check_options(device, options));
  VOLTA_TRY(check_matrix(x, "x"));
  VOLTA_TRY(check_matrix(targets, "targets"));
  if (targets.shape()[0] != x.shape()[0]) {
    return invalid(fmt::format("x has {} rows, targets have {}; they must be as many", x.shape()[0],
                               targets.shape()[0]));
  }
  const Sizes sizes{x.shape()[0], x.shape()[1], options.hidden, targets.shape()[1]};
  return train(*device, x, targets, sizes, Loss::kMeanSquaredError, options);
}

}  // namespace volta
