#include "train/trainer.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "device/checking_device.h"
#include "support/alloc_counter.h"
#include "support/async_device.h"
#include "support/fault_device.h"
#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;

RandomWindows batches(std::int64_t time = 8) {
  return *RandomWindows::create(test::small_tokens(500), time, 3);
}

Trainer make_trainer(const TrainerOptions& options, std::shared_ptr<Device> device) {
  const auto model = Transformer::random(test::small_config(), 1, std::move(device));
  auto trainer = Trainer::create(*model, options);
  if (!trainer) ADD_FAILURE() << trainer.error().message();
  return *std::move(trainer);
}
Trainer make_trainer(const TrainerOptions& options, int threads = 2) {
  return make_trainer(options, test::device(threads));
}

std::vector<double> losses_of(Trainer& trainer, const BatchSource& source, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    const auto report = trainer.step(source);
    if (!report) {
      ADD_FAILURE() << report.error().message();
      return losses;
    }
    losses.push_back(report->loss);
  }
  return losses;
}

TEST(Trainer, LearnsAndReports) {
  Trainer trainer = make_trainer(test::small_options());
  const RandomWindows source = batches();
  const auto first = trainer.step(source);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->step, 1);
  EXPECT_NEAR(first->loss, std::log(13.0), 0.1);
  EXPECT_DOUBLE_EQ(first->lr, 1e-2 / 4.0);
  EXPECT_GT(first->grad_norm, 0.0);
  EXPECT_EQ(trainer.steps_done(), 1);
  const std::vector<double> losses = losses_of(trainer, source, 60);
  EXPECT_LT(losses.back(), 1.8);
}

TEST(Trainer, MemoryIsKnownBeforeTheFirstStep) {
  const Trainer plain = make_trainer(test::small_options());
  EXPECT_EQ(plain.memory().weights, plain.model().weight_bytes());
  EXPECT_EQ(plain.memory().optimizer, 2 * plain.model().weight_bytes());
  EXPECT_GT(plain.memory().activations, 0);
  TrainerOptions options = test::small_options();
  options.accumulate = 2;
  const Trainer accumulating = make_trainer(options);
  EXPECT_EQ(accumulating.memory().optimizer, 3 * plain.model().weight_bytes() + 4);
}

TEST(Trainer, MemoryIsEstimatedWithoutAModel) {
  for (const std::int64_t accumulate : {1, 2}) {
    TrainerOptions options = test::small_options();
    options.accumulate = accumulate;
    const Trainer trainer = make_trainer(options);
    VOLTA_ASSERT_OK(const TrainerMemory estimated,
                    Trainer::estimate(trainer.model().config(), {}, options, *test::device(2)));
    EXPECT_EQ(estimated.weights, trainer.memory().weights);
    EXPECT_EQ(estimated.optimizer, trainer.memory().optimizer);
    EXPECT_EQ(estimated.activations, trainer.memory().activations);
    options.batch *= 2;
    VOLTA_ASSERT_OK(const TrainerMemory larger,
                    Trainer::estimate(trainer.model().config(), {}, options, *test::device(2)));
    EXPECT_GT(larger.activations, estimated.activations);
  }
}

TEST(Trainer, AnyNumberOfThreadsGivesTheSameBits) {
  TrainerOptions options = test::small_options();
  options.dropout = 0.1f;
  options.batch = 16;
  const RandomWindows source = batches();
  Trainer one = make_trainer(options, 1);
  const std::vector<double> losses = losses_of(one, source, 8);
  for (const int threads : {2, 3}) {
    Trainer other = make_trainer(options, threads);
    EXPECT_EQ(losses_of(other, source, 8), losses) << threads << " threads";
    EXPECT_EQ(test::bits_of(other.model().weights()), test::bits_of(one.model().weights()));
  }
}

// A bigger model, so that kernels really split their work.
TEST(Trainer, ThreadsGiveTheSameBitsWhereWorkIsSplit) {
  TransformerConfig config = tiny_lm_config();
  config.context = 64;
  config.layers = 2;
  TrainerOptions options = test::small_options();
  options.time = 64;
  const auto source = RandomWindows::create(test::small_tokens(500), 64, 3);
  std::vector<std::vector<double>> all;
  for (const int threads : {1, 2, 3}) {
    const auto model = Transformer::random(config, 1, test::device(threads));
    auto trainer = Trainer::create(*model, options);
    ASSERT_TRUE(trainer);
    all.push_back(losses_of(*trainer, *source, 3));
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
}

// Gradients of micro-batches are added in another order than those of the whole batch: each sum of
// n terms may differ by n eps times the sum of sizes. Adam divides by the root of the second
// moment, so the relative error of a gradient becomes one of the update, at most lr in size.
TEST(Trainer, AccumulationEqualsTheFullBatch) {
  TrainerOptions whole = test::small_options();
  whole.batch = 8;
  TrainerOptions parts = whole;
  parts.batch = 2;
  parts.accumulate = 4;
  const RandomWindows source = batches();
  Trainer a = make_trainer(whole);
  Trainer b = make_trainer(parts);
  const double eps = std::numeric_limits<float>::epsilon();
  const double terms = 8 * 8;  // Tokens of the batch.
  for (int step = 0; step < 5; ++step) {
    const auto left = a.step(source);
    const auto right = b.step(source);
    ASSERT_TRUE(left && right);
    EXPECT_NEAR(left->loss, right->loss, terms * eps * left->loss * (step + 1));
    EXPECT_NEAR(left->grad_norm, right->grad_norm, terms * eps * left->grad_norm * (step + 1));
  }
}

TEST(Trainer, SgdWithMomentumLearns) {
  TrainerOptions options = test::small_options();
  options.optimizer.kind = OptimizerConfig::Kind::kSgd;
  options.optimizer.momentum = 0.9f;
  options.schedule = {.kind = ScheduleKind::kConstant, .lr = 0.1, .steps = 100};
  Trainer trainer = make_trainer(options);
  EXPECT_TRUE(trainer.optimizer_state().begin()->first.starts_with("sgd.v."));
  EXPECT_LT(losses_of(trainer, batches(), 60).back(), 2.2);
  options.optimizer.momentum = 0.0f;
  EXPECT_TRUE(make_trainer(options).optimizer_state().empty());
}

// The loss of the last step in bf16, and in f32 on the same batches.
TEST(Trainer, LearnsAsWellInBf16) {
  TrainerOptions options = test::small_options();
  options.schedule.steps = 60;
  Trainer full = make_trainer(options);
  options.compute_dtype = DType::kBF16;
  Trainer half = make_trainer(options);
  const RandomWindows source = batches();
  const std::vector<double> a = losses_of(half, source, 60);
  const std::vector<double> b = losses_of(full, source, 60);
  EXPECT_LT(b.back(), b.front() - 0.5);
  EXPECT_NE(a.front(), b.front());
  EXPECT_NEAR(a.back(), b.back(), 0.02);
}

// Activations and their gradients are bf16; what the optimiser reads and writes is f32.
TEST(Trainer, StoresActivationsInBf16) {
  TrainerOptions options = test::small_options();
  Trainer full = make_trainer(options);
  options.compute_dtype = DType::kBF16;
  const Trainer half = make_trainer(options);
  for (const auto& [name, tensor] : half.optimizer_state()) EXPECT_EQ(tensor.dtype(), DType::kF32);
  for (const auto& [name, tensor] : half.model().weights()) EXPECT_EQ(tensor.dtype(), DType::kF32);
  const auto count = [&](const Graph& graph, DType dtype) {
    std::size_t attention = 0;
    for (const Node& node : graph.nodes()) {
      if (!std::holds_alternative<Attention>(node.op) &&
          !std::holds_alternative<AttentionGrad>(node.op)) {
        continue;
      }
      attention += graph.spec(node.outputs[0]).dtype == dtype ? 1 : 0;
    }
    return attention;
  };
  EXPECT_EQ(count(half.graph(), DType::kBF16), 4u);  // Forward and backward in two layers.
  EXPECT_EQ(count(full.graph(), DType::kF32), 4u);
}

class Restore : public testing::TestWithParam<DType> {};

TEST_P(Restore, ContinuesBitForBit) {
  TrainerOptions options = test::small_options();
  options.compute_dtype = GetParam();
  options.dropout = 0.2f;
  const RandomWindows source = batches();
  Trainer unbroken = make_trainer(options);
  losses_of(unbroken, source, 4);
  // The second half in another trainer, on copies.
  std::map<std::string, Tensor> weights;
  for (const auto& [name, tensor] : unbroken.model().weights()) {
    weights.emplace(name, *tensor.clone_to());
  }
  std::map<std::string, Tensor> state;
  for (const auto& [name, tensor] : unbroken.optimizer_state()) {
    state.emplace(name, *tensor.clone_to());
  }
  const auto model = Transformer::from_weights(test::small_config(), weights, test::device(2));
  ASSERT_TRUE(model);
  auto resumed = Trainer::create(*model, options);
  ASSERT_TRUE(resumed);
  ASSERT_TRUE(resumed->restore(4, state));
  EXPECT_EQ(losses_of(*resumed, source, 4), losses_of(unbroken, source, 4));
  EXPECT_EQ(test::bits_of(resumed->model().weights()), test::bits_of(unbroken.model().weights()));
  EXPECT_EQ(test::bits_of(resumed->optimizer_state()), test::bits_of(unbroken.optimizer_state()));
}

INSTANTIATE_TEST_SUITE_P(Types, Restore, testing::Values(DType::kF32, DType::kBF16));

TEST(Trainer, RestoreRefusesAnotherModelsState) {
  Trainer trainer = make_trainer(test::small_options());
  expect_error(trainer.restore(-1, trainer.optimizer_state()), ErrorCode::kInvalidArgument,
               "-1 steps done");
  expect_error(trainer.restore(3, {}), ErrorCode::kInvalidFile, "is missing");
  auto state = trainer.optimizer_state();
  state.begin()->second = *Tensor::zeros({DType::kF32, Shape(3)});
  expect_error(trainer.restore(3, state), ErrorCode::kInvalidFile, "f32[3]");
  EXPECT_EQ(trainer.steps_done(), 0);
}

// Gives the same batch but for one bad id.
class BadIds final : public BatchSource {
 public:
  BadIds(std::int32_t id, std::int32_t target) : id_(id), target_(target) {}
  Status fill(std::int64_t, std::int64_t, std::span<std::int32_t> ids,
              std::span<std::int32_t> targets) const override {
    std::fill(ids.begin(), ids.end(), 1);
    std::fill(targets.begin(), targets.end(), 1);
    ids.back() = id_;
    targets.back() = target_;
    return {};
  }

 private:
  std::int32_t id_;
  std::int32_t target_;
};

TEST(Trainer, ChecksTheIdsOfABatch) {
  Trainer trainer = make_trainer(test::small_options());
  expect_error(trainer.step(BadIds(13, 1)), ErrorCode::kInvalidArgument,
               "step 1: token id 13 is outside the vocabulary of 13");
  expect_error(trainer.step(BadIds(-1, 1)), ErrorCode::kInvalidArgument, "token id -1");
  expect_error(trainer.step(BadIds(1, 99)), ErrorCode::kInvalidArgument, "token id 99");
  EXPECT_TRUE(trainer.step(BadIds(1, -1)));  // A negative target is ignored.
}

class NonFinite : public testing::TestWithParam<std::int64_t> {};

TEST_P(NonFinite, StopsWithTheStepAndTheOpNamedAndTheWeightsKept) {
  TrainerOptions options = test::small_options();
  options.accumulate = GetParam();
  Trainer trainer = make_trainer(options);
  const RandomWindows source = batches();
  losses_of(trainer, source, 2);
  Tensor norm = *trainer.model().weight("transformer.h.1.ln_2.weight");
  const std::vector<float> good = test::values(norm);
  std::vector<float> bad = good;
  bad[3] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(norm.write<float>(bad));
  const auto weights = test::bits_of(trainer.model().weights());
  const auto moments = test::bits_of(trainer.optimizer_state());
  const auto report = trainer.step(source);
  expect_error(report, ErrorCode::kNonFinite, "step 3: loss");
  EXPECT_THAT(report.error().message(), testing::HasSubstr("h.1.mlp"));
  EXPECT_THAT(report.error().message(), testing::Not(testing::HasSubstr("-nan")));
  EXPECT_EQ(test::bits_of(trainer.model().weights()), weights);
  EXPECT_EQ(test::bits_of(trainer.optimizer_state()), moments);
  EXPECT_EQ(trainer.steps_done(), 2);
  // Repaired, it goes on as if nothing had happened.
  ASSERT_TRUE(norm.write<float>(good));
  Trainer unbroken = make_trainer(options);
  EXPECT_EQ(losses_of(trainer, source, 2).back(), losses_of(unbroken, source, 4).back());
}
INSTANTIATE_TEST_SUITE_P(Accumulate, NonFinite, testing::Values(1, 2));

TEST(Trainer, ExecutingAStepAllocatesNothing) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "a sanitizer owns malloc";
  for (const auto& [threads, dtype] :
       {std::pair(1, DType::kF32), {2, DType::kF32}, {2, DType::kBF16}}) {
    const auto device = test::device(threads);
    const auto model = Transformer::random(test::small_config(), 1, device);
    TrainerOptions options = test::small_options();
    options.dropout = 0.1f;
    options.batch = 32;
    options.compute_dtype = dtype;
    auto faulty = std::make_shared<test::FaultyDevice>(test::cpu(threads));
    const auto proxied = Transformer::random(test::small_config(), 1, faulty);
    auto trainer = Trainer::create(*proxied, options);
    ASSERT_TRUE(trainer);
    const RandomWindows source = batches();
    ASSERT_TRUE(trainer->step(source));  // Warms the pool up.
    // The whole step allocates for names and reports only; the ops themselves nothing.
    const std::int64_t device_before = faulty->faulty_memory().allocations();
    ASSERT_TRUE(trainer->step(source));
    EXPECT_EQ(faulty->faulty_memory().allocations(), device_before);

    const auto graph = build_training_graph(
        test::small_config(), {.batch = 32, .time = 8, .dropout = {0.1f}, .optimizer = {}});
    ASSERT_TRUE(graph);
    const auto typed = set_compute_dtype(*graph, dtype, Rounding::kActivations);
    ASSERT_TRUE(typed);
    auto plan = make_plan(*typed, *device);
    ASSERT_TRUE(plan);
    auto bound =
        device->load(std::make_shared<const Plan>(*std::move(plan)),
                     [&](const PlanBinding& binding) -> Result<Tensor> {
                       auto known = model->bind(binding);
                       return known ? known : Tensor::zeros(binding.spec, device->memory());
                     });
    ASSERT_TRUE(bound);
    ASSERT_TRUE(bound->run());
    ASSERT_TRUE(bound->run());  // A GPU records a plan at its second run.
    const test::AllocationCounter counter;
    const Status status = bound->run();
    const std::int64_t count = counter.count();
    EXPECT_TRUE(status);
    EXPECT_EQ(count, 0) << threads << " threads";
  }
}

TEST(Trainer, DeviceFailuresComeThrough) {
  auto device = std::make_shared<test::FaultyDevice>(test::cpu(1));
  const auto model = Transformer::random(test::small_config(), 1, device);
  auto trainer = Trainer::create(*model, test::small_options());
  ASSERT_TRUE(trainer);
  const RandomWindows source = batches();
  device->run_fuse.arm(5);
  expect_error(trainer->step(source), ErrorCode::kDevice, "injected");
  EXPECT_TRUE(trainer->step(source));
  // No memory for the trainer's own tensors, wherever it runs out.
  for (std::int64_t nth = 1;; ++nth) {
    device->faulty_memory().allocation_fuse.arm(nth);
    const auto other = Trainer::create(*model, test::small_options());
    device->faulty_memory().allocation_fuse.arm(0);
    if (other) {
      EXPECT_GT(nth, 20);
      break;
    }
    EXPECT_EQ(other.error().code(), ErrorCode::kOutOfMemory);
  }
}

// What the first micro-batch has added to the gradients is gone when the second one fails.
TEST(Trainer, AFailedMicroBatchLeavesNothingBehind) {
  auto device = std::make_shared<test::FaultyDevice>(test::cpu(1));
  const auto model = Transformer::random(test::small_config(), 1, device);
  TrainerOptions options = test::small_options();
  options.accumulate = 2;
  auto trainer = Trainer::create(*model, options);
  ASSERT_TRUE(trainer);
  const auto other = Transformer::random(test::small_config(), 1, test::cpu(1));
  auto unbroken = Trainer::create(*other, options);
  ASSERT_TRUE(unbroken);
  const RandomWindows source = batches();
  const auto calls = static_cast<std::int64_t>(trainer->graph().nodes().size());
  device->run_fuse.arm(calls + calls / 2);
  expect_error(trainer->step(source), ErrorCode::kDevice, "injected");
  const auto again = trainer->step(source), straight = unbroken->step(source);
  ASSERT_TRUE(again && straight);
  EXPECT_EQ(again->grad_norm, straight->grad_norm);
  EXPECT_EQ(again->loss, straight->loss);
}

// Memory the host may not touch: everything goes through copies, and each may fail.
TEST(Trainer, WorksOnMemoryThatTheHostCannotTouch) {
  auto device = std::make_shared<test::FaultyDevice>(test::cpu(1), false);
  const auto model = Transformer::random(test::small_config(), 1, device);
  TrainerOptions options = test::small_options();
  options.accumulate = 2;
  options.dropout = 0.1f;
  auto trainer = Trainer::create(*model, options);
  ASSERT_TRUE(trainer) << trainer.error().message();
  const RandomWindows source = batches();
  Trainer reference = make_trainer(options, test::cpu(1));
  EXPECT_EQ(losses_of(*trainer, source, 2), losses_of(reference, source, 2));
  for (std::int64_t nth = 1;; ++nth) {
    device->faulty_memory().copy_fuse.arm(nth);
    const auto report = trainer->step(source);
    device->faulty_memory().copy_fuse.arm(0);
    if (report) {
      // Two micro-batches and the update: each run takes its inputs over in one copy and gives its
      // results in another.
      EXPECT_EQ(nth, 3 * 2 + 1);
      break;
    }
    EXPECT_EQ(report.error().code(), ErrorCode::kDevice);
  }
}

TEST(Trainer, WorksOnAnAsynchronousDevice) {
  for (const std::int64_t accumulate : {1, 2}) {
    const auto faulty = std::make_shared<test::FaultyDevice>(test::cpu(1));
    const auto device = std::make_shared<test::AsyncDevice>(faulty);
    const auto model = Transformer::random(test::small_config(), 1, device);
    TrainerOptions options = test::small_options();
    options.accumulate = accumulate;
    options.dropout = 0.1f;
    auto trainer = Trainer::create(*model, options);
    ASSERT_TRUE(trainer) << trainer.error().message();
    const RandomWindows source = batches();
    Trainer reference = make_trainer(options, test::cpu(1));
    EXPECT_EQ(losses_of(*trainer, source, 3), losses_of(reference, source, 3));
    // Each run of a plan copies one block to the device and one back, waits once, and allocates
    // nothing there.
    const std::int64_t runs = accumulate > 1 ? accumulate + 1 : 1;
    const std::int64_t to = device->async_memory().copies_from_host;
    const std::int64_t from = device->async_memory().copies_to_host;
    const std::int64_t waits = device->queue().waits;
    const std::int64_t allocations = device->async_memory().allocations;
    EXPECT_EQ(losses_of(*trainer, source, 1), losses_of(reference, source, 1));
    EXPECT_EQ(device->async_memory().copies_from_host, to + runs);
    EXPECT_EQ(device->async_memory().copies_to_host, from + runs);
    EXPECT_EQ(device->queue().waits, waits + runs);
    EXPECT_EQ(device->async_memory().allocations, allocations);
    // A step that fails late changes nothing that the next one sees.
    faulty->run_fuse.arm(7);
    expect_error(trainer->step(source), ErrorCode::kDevice, "injected");
    EXPECT_EQ(losses_of(*trainer, source, 3), losses_of(reference, source, 3));
    EXPECT_GT(device->overtakes(), 0);
  }
}

TEST(TrainerOptions, RefuseWhatCannotWork) {
  const auto expect_refused = [](auto change, const std::string& text) {
    TrainerOptions options = test::small_options();
    change(options);
    expect_error(validate(options), ErrorCode::kInvalidArgument, text);
    const auto model = Transformer::random(test::small_config(), 1, test::device(1));
    EXPECT_FALSE(Trainer::create(*model, options));
  };
  EXPECT_TRUE(validate(test::small_options()));
  expect_refused([](auto& o) { o.batch = 0; }, "batch is 0");
  expect_refused([](auto& o) { o.batch = std::int64_t{1} << 60; },
                 "a batch of 1152921504606846976 with sequences of 8 tokens is too large");
  expect_refused([](auto& o) { o.time = -1; }, "sequence length is -1");
  expect_refused([](auto& o) { o.batch = o.time = 1 << 20; },
                 "a batch of 1048576 with sequences of 1048576 tokens is too large");
  expect_refused([](auto& o) { o.accumulate = 0; }, "accumulate is 0");
  expect_refused([](auto& o) { o.dropout = 1.0f; }, "dropout is 1");
  expect_refused([](auto& o) { o.dropout = NAN; }, "dropout is nan");
  expect_refused([](auto& o) { o.optimizer.beta1 = 1.0f; }, "beta1 is 1");
  expect_refused([](auto& o) { o.optimizer.beta2 = -0.1f; }, "beta2 is -0.1");
  expect_refused([](auto& o) { o.optimizer.eps = 0.0f; }, "eps is 0");
  expect_refused([](auto& o) { o.optimizer.weight_decay = -1.0f; }, "weight_decay is -1");
  expect_refused([](auto& o) { o.optimizer.weight_decay = INFINITY; }, "weight_decay is inf");
  expect_refused([](auto& o) { o.optimizer.weight_decay = 1e30f; },
                 "their product must be below 1 (usual: an lr of 1e-4 to 1e-2");
  expect_refused([](auto& o) { o.optimizer.weight_decay = 100.0f; },
                 "and weight_decay 100; their product");
  expect_refused([](auto& o) { o.optimizer.momentum = 1.0f; }, "momentum is 1");
  expect_refused([](auto& o) { o.optimizer.clip = -1.0f; }, "clip is -1");
  expect_refused([](auto& o) { o.compute_dtype = DType::kF16; }, "compute type is f16");
  expect_refused([](auto& o) { o.schedule.lr = -1.0; }, "lr is -1");
}

TEST(Trainer, RefusesSequencesLongerThanTheContext) {
  TrainerOptions options = test::small_options();
  options.time = 9;
  const auto model = Transformer::random(test::small_config(), 1, test::device(1));
  expect_error(Trainer::create(*model, options), ErrorCode::kInvalidArgument,
               "longer than the model's context of 8");
}

// Far more memory than any machine has: an error, not a crash, and nothing allocated before.
TEST(Trainer, AbsurdSizesAreAnError) {
  TrainerOptions options = test::small_options();
  options.time = 8;
  options.batch = std::int64_t{1} << 28;
  const auto model = Transformer::random(test::small_config(), 1, test::device(1));
  const auto trainer = Trainer::create(*model, options);
  ASSERT_FALSE(trainer);
  EXPECT_TRUE(trainer.error().code() == ErrorCode::kOutOfMemory ||
              trainer.error().code() == ErrorCode::kInvalidArgument)
      << trainer.error().message();
}

}  // namespace
}  // namespace volta
