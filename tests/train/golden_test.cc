// Whole models against goldens made by others (PyTorch): logits, every parameter's gradient, the
// losses of 20 AdamW updates and the weights after them. Tensors are found by name.
#include <cmath>
#include <string>

#include "device/device.h"
#include "formats/safetensors.h"
#include "graph/passes.h"
#include "nn/training_graph.h"
#include "nn/transformer_graph.h"
#include "support/model.h"
#include "support/shared_data.h"
#include "train/data.h"
#include "train/helpers.h"
#include "train/trainer.h"

namespace volta {
namespace {

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = std::string("models/") + GetParam();
    VOLTA_NEEDS_SHARED(folder_ + "/train_golden.safetensors");
    device_ = test::device(2);
    VOLTA_ASSERT_OK(model_, test::load_model(test::shared_path(folder_), device_));
  }

  std::map<std::string, Tensor> load(const std::string& name) {
    auto file = SafetensorsFile::open(test::shared_path(folder_ + "/" + name));
    if (!file) {
      ADD_FAILURE() << file.error().message();
      return {};
    }
    return *file->load_all();
  }

  std::string folder_;
  std::shared_ptr<Device> device_;
  std::optional<Transformer> model_;
};

// |a - b| / |b| over the elements that `counts` lets through.
template <typename Counts>
double relative_l2(const std::vector<float>& a, const std::vector<float>& b, Counts counts) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (!counts(i)) continue;
    const double d = static_cast<double>(a.at(i)) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return norm == 0.0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}
constexpr auto kAll = [](std::size_t) { return true; };

Result<Executable> bind_zeroed(const Graph& graph, const Transformer& model) {
  Device& device = *model.device();
  VOLTA_TRY(const Graph optimized, optimize(graph, device));
  VOLTA_TRY(Plan plan, make_plan(optimized, device));
  return device.load(std::make_shared<const Plan>(std::move(plan)),
                     [&](const PlanBinding& binding) -> Result<Tensor> {
                       if (binding.kind == ValueKind::kParameter) return model.bind(binding);
                       auto known = model.bind(binding);
                       if (known) return known;
                       return Tensor::zeros(binding.spec, device.memory());
                     });
}

Status set_ints(const Executable& plan, const std::string& name,
                const std::vector<std::int32_t>& values) {
  VOLTA_TRY(Tensor input, plan.binding(name));
  return input.write(std::span<const std::int32_t>(values));
}

std::vector<std::int32_t> count_up(std::int64_t n) {
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<std::int32_t>(i));
  return values;
}

std::vector<std::int32_t> narrow(const Tensor& ids) {
  std::vector<std::int32_t> out;
  for (const std::int64_t id : test::values<std::int64_t>(ids)) {
    out.push_back(static_cast<std::int32_t>(id));
  }
  return out;
}

TEST_P(Golden, Logits) {
  const auto golden = load("golden.safetensors");
  const Tensor& ids = golden.at("input_ids");
  const std::int64_t batch = ids.shape()[0];
  const std::int64_t time = ids.shape()[1];
  VOLTA_ASSERT_OK(const Graph graph, build_evaluation_graph(model_->config(), batch, time, true));
  VOLTA_ASSERT_OK(Executable plan, bind_zeroed(graph, *model_));
  VOLTA_ASSERT_STATUS(set_ints(plan, "ids", narrow(ids)));
  VOLTA_ASSERT_STATUS(set_ints(plan, "positions", count_up(time)));
  VOLTA_ASSERT_STATUS(plan.run());
  VOLTA_ASSERT_OK(const Tensor logits, plan.output("logits"));
  EXPECT_LT(relative_l2(test::values(logits), test::values(golden.at("logits")), kAll), 1e-4);
}

TEST_P(Golden, Gradients) {
  const auto golden = load("train_golden.safetensors");
  const Tensor& rows = golden.at("input_ids");
  const std::int64_t batch = rows.shape()[0];
  const std::int64_t time = rows.shape()[1] - 1;
  VOLTA_ASSERT_OK(ExampleRows source, ExampleRows::create(narrow(rows), batch, time, 1));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(batch * time));
  std::vector<std::int32_t> targets(ids.size());
  VOLTA_ASSERT_STATUS(source.fill(0, 0, ids, targets));
  VOLTA_ASSERT_OK(
      const Graph graph,
      build_accumulate_graph(model_->config(),
                             {.batch = batch, .time = time, .dropout = {}, .optimizer = {}}));
  VOLTA_ASSERT_OK(Executable plan, bind_zeroed(graph, *model_));
  VOLTA_ASSERT_STATUS(set_ints(plan, "ids", ids));
  VOLTA_ASSERT_STATUS(set_ints(plan, "targets", targets));
  VOLTA_ASSERT_STATUS(set_ints(plan, "positions", count_up(time)));
  VOLTA_ASSERT_STATUS(plan.run());
  std::size_t compared = 0;
  double squares = 0.0;
  for (const auto& [name, tensor] : golden) {
    if (!name.starts_with("grad.")) continue;
    VOLTA_ASSERT_OK(const Tensor gradient, plan.binding(name));
    const std::vector<float> wanted = test::values(tensor);
    EXPECT_LT(relative_l2(test::values(gradient), wanted, kAll), 2e-5) << name;
    for (const float g : wanted) squares += static_cast<double>(g) * static_cast<double>(g);
    ++compared;
  }
  EXPECT_EQ(compared, parameters(model_->config()).size());
  EXPECT_NEAR(std::sqrt(squares), static_cast<double>(test::values(golden.at("grad_norm"))[0]),
              1e-3);
}

// One update of the recipe in the goldens: constant rate, decay on matrices, clipping.
TrainerOptions recipe(std::int64_t batch, std::int64_t time, std::int64_t accumulate) {
  TrainerOptions o;
  o.batch = batch / accumulate;
  o.time = time;
  o.accumulate = accumulate;
  o.optimizer = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .clip = 1.0f};
  o.schedule = {.kind = ScheduleKind::kConstant, .lr = 1e-3, .steps = 20};
  return o;
}

void expect_updates(const Transformer& model, const std::map<std::string, Tensor>& golden,
                    std::int64_t accumulate) {
  const Tensor& rows = golden.at("input_ids");
  const std::int64_t batch = rows.shape()[0];
  const std::int64_t time = rows.shape()[1] - 1;
  VOLTA_ASSERT_OK(const ExampleRows source,
                  ExampleRows::create(narrow(rows), batch, time, accumulate));
  VOLTA_ASSERT_OK(Trainer trainer, Trainer::create(model, recipe(batch, time, accumulate)));
  for (const float wanted : test::values(golden.at("losses"))) {
    VOLTA_ASSERT_OK(const StepReport report, trainer.step(source));
    const double loss = static_cast<double>(wanted);
    EXPECT_NEAR(report.loss, loss, 1e-5 * loss) << "step " << report.step;
    if (report.step == 1) {
      const double norm = static_cast<double>(test::values(golden.at("grad_norm"))[0]);
      EXPECT_NEAR(report.grad_norm, norm, 1e-5 * norm);
    }
  }
  for (const auto& [name, weight] : trainer.model().weights()) {
    const std::vector<float> gradient = test::values(golden.at("grad." + name));
    const auto counts = [&](std::size_t i) { return std::abs(gradient[i]) > 1e-6f; };
    EXPECT_LT(
        relative_l2(test::values(weight), test::values(golden.at("param_after." + name)), counts),
        1e-4)
        << name;
  }
}

TEST_P(Golden, TwentyUpdates) { expect_updates(*model_, load("train_golden.safetensors"), 1); }

TEST_P(Golden, TwentyUpdatesWithAccumulation) {
  expect_updates(*model_, load("train_golden.safetensors"), 2);
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::Values("gpt2-tiny", "llama-tiny", "qwen3-tiny"),
                         [](const auto& test_info) {
                           std::string name = test_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace volta
