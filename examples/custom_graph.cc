// Builds a graph by hand: fits y = w x by gradient descent, with the gradient made by Volta.
#include <volta/volta.h>

#include <array>
#include <cstdio>
#include <memory>
#include <utility>

namespace {

using volta::BinaryKind;
using volta::DType;
using volta::Shape;

volta::Status run() {
  // loss = mean((x w - y)^2), then w -= lr dloss/dw.
  volta::Graph graph;
  VOLTA_TRY(const auto x, graph.input("x", {DType::kF32, Shape(4, 1)}));
  VOLTA_TRY(const auto y, graph.input("y", {DType::kF32, Shape(4, 1)}));
  VOLTA_TRY(const auto w, graph.parameter("w", {DType::kF32, Shape(1, 1)}));
  VOLTA_TRY(const auto prediction, graph.add_one(volta::MatMul{}, {x, w}));
  VOLTA_TRY(const auto error, graph.add_one(volta::Binary{BinaryKind::kSub}, {prediction, y}));
  VOLTA_TRY(const auto square, graph.add_one(volta::Unary{volta::UnaryKind::kSquare}, {error}));
  VOLTA_TRY(const auto loss,
            graph.add_one(volta::Reduce{volta::ReduceKind::kMean, 0, 2}, {square}));
  VOLTA_TRY(const auto gradients, volta::differentiate(graph, loss, {&w, 1}));
  VOLTA_TRY(graph.add(volta::Accumulate{-0.1f}, std::array{w, gradients[0]}));
  VOLTA_TRY(graph.output("loss", loss));

  VOLTA_TRY(const volta::DeviceHandle device, volta::open_device());
  VOLTA_TRY(const volta::Graph optimized, volta::optimize(graph, device.device()));
  std::printf("%s\n", volta::to_text(optimized).c_str());
  VOLTA_TRY(volta::Plan plan, volta::make_plan(optimized, device.device()));
  const auto lookup = [&](const volta::PlanBinding& binding) {
    return volta::Tensor::zeros(binding.spec, device.device().memory());
  };
  VOLTA_TRY(auto bound, device.load(std::make_shared<const volta::Plan>(std::move(plan)), lookup));

  VOLTA_TRY(volta::Tensor inputs, bound.binding("x"));
  VOLTA_TRY(volta::Tensor targets, bound.binding("y"));
  VOLTA_TRY(inputs.write<float>(std::array{1.0f, 2.0f, 3.0f, 4.0f}));
  VOLTA_TRY(targets.write<float>(std::array{3.0f, 6.0f, 9.0f, 12.0f}));
  for (int step = 0; step < 20; ++step) {
    VOLTA_TRY(bound.run());
  }
  std::array<float, 1> weight{};
  VOLTA_TRY(const volta::Tensor fitted, bound.binding("w"));
  VOLTA_TRY(fitted.read<float>(weight));
  std::printf("w = %.4f\n", static_cast<double>(weight[0]));
  return {};
}

}  // namespace

int main() {
  const volta::Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.error().message().c_str());
  return status ? 0 : 1;
}
