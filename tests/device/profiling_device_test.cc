// ProfilingDevice: what it counts, how events are bounded, that results pass through unchanged,
// that it allocates nothing while a plan runs, and what it costs.
#include "device/profiling_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "device/helpers.h"
#include "device/tensor_ops.h"
#include "support/alloc_counter.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::expect_error;
using test::floats;
using test::values;
using ::testing::ElementsAre;

std::shared_ptr<ProfilingDevice> profiling(std::shared_ptr<Device> inner,
                                           std::int64_t max_events = 1024) {
  auto made = ProfilingDevice::create(std::move(inner), {.max_events = max_events});
  EXPECT_TRUE(made);
  return *made;
}

TEST(ProfilingDevice, ForwardsWhatItIsAsked) {
  const auto cpu = test::cpu();
  const auto device = profiling(cpu);
  EXPECT_EQ(device->info().id, "cpu");
  EXPECT_EQ(device->memory(), cpu->memory());
  EXPECT_TRUE(device->synchronize());
  const std::array specs = {test::f32(Shape(8, 8)), test::f32(Shape(8, 8))};
  EXPECT_TRUE(device->supports(MatMul{}, specs));
  EXPECT_EQ(device->workspace_bytes(MatMul{}, specs, {specs.data(), 1}),
            cpu->workspace_bytes(MatMul{}, specs, {specs.data(), 1}));
  const TensorSpec weight{DType::kF32, Shape(4, 4)};
  EXPECT_EQ(device->preferred_encoding(MatMul{}, 1, weight),
            cpu->preferred_encoding(MatMul{}, 1, weight));
  EXPECT_FALSE(cpu->kernel_parameters(MatMul{}, specs).empty());
  EXPECT_EQ(device->kernel_parameters(MatMul{}, specs), cpu->kernel_parameters(MatMul{}, specs));
  const std::array inputs = {floats(Shape(1), {1})};
  EXPECT_TRUE(device->evaluate(Unary{}, inputs));
  EXPECT_TRUE(device->profile().ops.empty());  // Passes are not what is measured.
}

TEST(ProfilingDevice, RefusesNonsense) {
  expect_error(ProfilingDevice::create(nullptr), ErrorCode::kInvalidArgument, "not null");
  expect_error(ProfilingDevice::create(test::cpu(), {.max_events = -1}),
               ErrorCode::kInvalidArgument, "-1");
  expect_error(ProfilingDevice::create(test::cpu(), {.max_events = std::int64_t{1} << 55}),
               ErrorCode::kOutOfMemory, "");
}

TEST(ProfilingDevice, CountsThePlansItExecutes) {
  const auto device = profiling(test::cpu());
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound);
  const std::int64_t before = monotonic_nanoseconds();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(bound->run());
  const std::int64_t elapsed = monotonic_nanoseconds() - before;
  EXPECT_THAT(values(bound->output("y")), ElementsAre(0, 1, 0, 1));

  const Profile profile = device->profile();
  EXPECT_THAT(profile.device, ::testing::StartsWith("cpu ("));
  EXPECT_EQ(profile.executions, 5);
  ASSERT_EQ(profile.ops.size(), 2u);
  ASSERT_EQ(profile.labels.size(), 2u);
  const auto matmul = std::ranges::find(profile.ops, "MatMul", &ProfileRow::op);
  ASSERT_NE(matmul, profile.ops.end());
  EXPECT_EQ(matmul->shapes, "f32[2, 3], f32[3, 2]");
  EXPECT_EQ(matmul->calls, 5);
  EXPECT_EQ(matmul->flops, 5 * 2 * 2 * 2 * 3);
  EXPECT_EQ(matmul->bytes, 5 * 4 * (6 + 6 + 4));
  EXPECT_LE(matmul->min_ns, matmul->max_ns);
  EXPECT_LE(5 * matmul->min_ns, matmul->total_ns);
  EXPECT_GE(profile.ops[0].total_ns, profile.ops[1].total_ns);
  EXPECT_EQ(profile.total_ns, profile.ops[0].total_ns + profile.ops[1].total_ns);
  EXPECT_GT(profile.total_ns, 0);
  EXPECT_LE(profile.total_ns, elapsed);
  const auto layer = std::ranges::find(profile.labels, "layer", &ProfileRow::label);
  ASSERT_NE(layer, profile.labels.end());
  EXPECT_EQ(layer->total_ns, matmul->total_ns);
}

// A weight counts as it lies in memory, not as the f32 matrix that it stands for.
TEST(ProfilingDevice, EncodedWeightsCountTheirOwnBytes) {
  const auto device = profiling(test::cpu());
  for (const Quant quant : {Quant::kNone, Quant::kInt8, Quant::kInt4}) {
    device->reset();
    const TensorSpec plain{DType::kF32, Shape(64, 32)};
    TensorSpec wanted = plain;
    wanted.encoding.quant = quant;
    wanted.encoding = device->preferred_encoding(MatMul{}, 1, wanted);
    ASSERT_EQ(wanted.encoding.quant, quant);
    ASSERT_FALSE(wanted.encoding.plain());
    const auto weight = tensor_ops::as_spec(*device, *Tensor::zeros(plain), wanted);
    ASSERT_TRUE(weight) << weight.error().message();
    const Profile loading = device->profile();
    ASSERT_EQ(loading.labels.size(), 1u);
    EXPECT_EQ(loading.labels[0].label, "load");
    device->reset();
    const std::array inputs = {*Tensor::zeros({DType::kF32, Shape(1, 64)}), *weight};
    ASSERT_TRUE(tensor_ops::apply(*device, MatMul{}, inputs));
    const Profile profile = device->profile();
    ASSERT_EQ(profile.ops.size(), 1u);
    EXPECT_EQ(profile.ops[0].bytes, 4 * 64 + wanted.bytes() + 4 * 32);
    EXPECT_THAT(profile.ops[0].shapes, ::testing::HasSubstr(to_string(wanted)));
  }
}

TEST(ProfilingDevice, EventsFollowEachOther) {
  const auto device = profiling(test::cpu());
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound);
  ASSERT_TRUE(bound->run());
  const Profile profile = device->profile();
  ASSERT_EQ(profile.events.size(), 3u);
  EXPECT_EQ(profile.dropped_events, 0);
  const ProfileEvent first = profile.events[0];
  const ProfileEvent second = profile.events[1];
  const ProfileEvent whole = profile.events[2];
  EXPECT_EQ(profile.sources[static_cast<std::size_t>(first.source)].label, "layer");
  EXPECT_EQ(profile.sources[static_cast<std::size_t>(second.source)].label, "layer.relu");
  EXPECT_EQ(first.start_ns + first.duration_ns, second.start_ns);
  EXPECT_EQ(whole.source, -1);
  EXPECT_EQ(whole.start_ns, first.start_ns);
  EXPECT_EQ(whole.duration_ns, first.duration_ns + second.duration_ns);
}

TEST(ProfilingDevice, KeepsTheLatestEvents) {
  for (const std::int64_t room : {0, 4}) {
    const auto device = profiling(test::cpu(), room);
    auto bound = test::bind_matmul_relu(*device);
    ASSERT_TRUE(bound);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(bound->run());
    const Profile profile = device->profile();
    ASSERT_EQ(std::ssize(profile.events), room);
    EXPECT_EQ(profile.dropped_events, 9 - room);
    if (room == 0) continue;
    EXPECT_EQ(profile.events[0].source, -1);  // Of the second execution.
    EXPECT_EQ(profile.events[3].source, -1);
    EXPECT_LE(profile.events[0].start_ns, profile.events[3].start_ns);
  }
}

TEST(ProfilingDevice, ResetForgets) {
  const auto device = profiling(test::cpu());
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound);
  ASSERT_TRUE(bound->run());
  device->reset();
  Profile profile = device->profile();
  EXPECT_TRUE(profile.ops.empty());
  EXPECT_TRUE(profile.events.empty());
  EXPECT_EQ(profile.executions, 0);
  EXPECT_EQ(profile.total_ns, 0);
  ASSERT_TRUE(bound->run());
  profile = device->profile();
  EXPECT_EQ(profile.ops.size(), 2u);
  EXPECT_EQ(profile.ops[0].calls, 1);
  ASSERT_EQ(profile.events.size(), 3u);
  EXPECT_GE(profile.events[0].start_ns, 0);
}

TEST(ProfilingDevice, MeasuresDirectCalls) {
  const auto device = profiling(test::cpu());
  ASSERT_TRUE(tensor_ops::relu(*device, floats(Shape(3), {1, -1, 0})));
  ASSERT_TRUE(tensor_ops::relu(*device, floats(Shape(3), {1, -1, 0})));
  ASSERT_TRUE(tensor_ops::relu(*device, floats(Shape(4), {1, -1, 0, 2})));
  const Profile profile = device->profile();
  ASSERT_EQ(profile.ops.size(), 2u);
  EXPECT_EQ(profile.ops[0].calls + profile.ops[1].calls, 3);
  ASSERT_EQ(profile.labels.size(), 1u);
  EXPECT_EQ(profile.labels[0].label, "");
  EXPECT_EQ(profile.executions, 0);
  EXPECT_EQ(profile.events.size(), 3u);
}

TEST(ProfilingDevice, TellsPlansApartAndForgetsTheDead) {
  const auto device = profiling(test::cpu());
  for (int i = 0; i < 4; ++i) {  // Each plan is gone before the next one may take its address.
    auto bound = test::bind_matmul_relu(*device);
    ASSERT_TRUE(bound);
    ASSERT_TRUE(bound->run());
    ASSERT_TRUE(bound->run());
  }
  Plan longer = test::matmul_relu_plan();
  longer.steps.push_back(longer.steps[1]);
  longer.steps[2].label = "again";
  auto bound = device->load(std::make_shared<const Plan>(std::move(longer)),
                            [&](const PlanBinding& binding) {
                              return test::matmul_relu_tensor(binding, device->memory());
                            });
  ASSERT_TRUE(bound);
  ASSERT_TRUE(bound->run());
  const Profile profile = device->profile();
  EXPECT_EQ(profile.executions, 9);
  EXPECT_EQ(profile.ops.size(), 2u);
  EXPECT_EQ(profile.labels.size(), 3u);
  EXPECT_EQ(profile.ops[0].calls + profile.ops[1].calls, 8 * 2 + 3);
}

TEST(ProfilingDevice, FailuresComeThroughAndWhatRanIsCounted) {
  const auto faulty = std::make_shared<test::FaultyDevice>(test::cpu());
  const auto device = profiling(faulty);
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound);
  faulty->run_fuse.arm(2);
  expect_error(bound->run(), ErrorCode::kDevice, "step 2 of 2: Unary{relu} 'layer.relu': injected");
  faulty->synchronize_fuse.arm(1);
  expect_error(bound->run(), ErrorCode::kDevice, "step 1 of 2: injected: late");
  faulty->run_fuse.arm(1);
  expect_error(device->run(bound->calls()[0]), ErrorCode::kDevice, "the device failed");
  faulty->synchronize_fuse.arm(1);
  expect_error(device->run(bound->calls()[0]), ErrorCode::kDevice, "late failure");
  const Profile profile = device->profile();
  EXPECT_EQ(profile.executions, 0);
  ASSERT_EQ(profile.ops.size(), 1u);
  EXPECT_EQ(profile.ops[0].calls, 1);
}

TEST(ProfilingDevice, ServesSeveralThreadsAtOnce) {
  const auto device = profiling(test::cpu(1), 16);
  const auto plan = std::make_shared<const Plan>(test::matmul_relu_plan());
  std::array<bool, 4> right{};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&, t] {
      auto bound = device->load(plan, [&](const PlanBinding& binding) {
        return test::matmul_relu_tensor(binding, device->memory());
      });
      bool ok = bound.has_value();
      for (int i = 0; ok && i < 100; ++i) ok = bound->run().has_value();
      right[t] = ok;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(right, ::testing::Each(true));
  const Profile profile = device->profile();
  EXPECT_EQ(profile.executions, 400);
  for (const ProfileRow& row : profile.ops) EXPECT_EQ(row.calls, 400);
}

TEST(ProfilingDevice, AllocatesNothingFromTheSecondExecutionOn) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "allocations cannot be counted here";
  const auto device = profiling(test::cpu(), 64);
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound);
  ASSERT_TRUE(bound->run());
  test::AllocationCounter counter;
  bool ok = true;
  for (int i = 0; i < 100; ++i) ok = bound->run().has_value() && ok;
  const std::int64_t heap = counter.count();
  EXPECT_TRUE(ok);
  EXPECT_EQ(heap, 0);
}

// A device whose ops take no time, so that what is left is the cost of measuring.
class IdleDevice final : public Device {
 public:
  std::function<void()> on_run;

  DeviceInfo info() const override { return {.id = "idle", .name = "", .isa = ""}; }
  const std::shared_ptr<MemoryOwner>& memory() const override { return memory_; }
  Status run(const OpCall&) override {
    if (on_run) on_run();
    return {};
  }
  bool supports(const Op&, std::span<const TensorSpec>) const override { return true; }
  std::int64_t workspace_bytes(const Op&, std::span<const TensorSpec>,
                               std::span<const TensorSpec>) const override {
    return 0;
  }

 private:
  std::shared_ptr<MemoryOwner> memory_ = host_memory();
};

TEST(ProfilingDevice, ResetForgetsWhatIsRunning) {
  const auto idle = std::make_shared<IdleDevice>();
  const auto device = profiling(idle);
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound);
  idle->on_run = [&] { device->reset(); };
  ASSERT_TRUE(bound->run());
  ASSERT_TRUE(device->run(bound->calls()[0]));
  const Profile profile = device->profile();
  EXPECT_TRUE(profile.events.empty());
  EXPECT_EQ(profile.executions, 0);
  EXPECT_EQ(profile.total_ns, 0);
  idle->on_run = nullptr;
  ASSERT_TRUE(bound->run());
  const Profile later = device->profile();
  EXPECT_EQ(later.events.size(), 3u);
  for (const ProfileEvent& event : later.events) EXPECT_GE(event.start_ns, 0);
}

double nanoseconds_per_step(Executable& bound) {
  constexpr int kRuns = 200;
  double best = 1e9;
  for (int repeat = 0; repeat < 10; ++repeat) {
    const std::int64_t start = monotonic_nanoseconds();
    for (int i = 0; i < kRuns; ++i) (void)bound.run();
    const double each = static_cast<double>(monotonic_nanoseconds() - start) /
                        (kRuns * static_cast<double>(bound.calls().size()));
    best = std::min(best, each);
  }
  return best;
}

TEST(ProfilingDevice, CostsLittle) {
  const auto idle = std::make_shared<IdleDevice>();
  const auto device = profiling(idle, 1 << 16);
  Plan plan = test::matmul_relu_plan();
  while (plan.steps.size() < 50) {
    plan.steps.push_back(plan.steps[plan.steps.size() - 2]);
    plan.steps.back().label = "step" + std::to_string(plan.steps.size());
  }
  const auto shared = std::make_shared<const Plan>(std::move(plan));
  const auto lookup = [&](const PlanBinding& binding) {
    return test::matmul_relu_tensor(binding, device->memory());
  };
  auto without = idle->load(shared, lookup);
  auto with = device->load(shared, lookup);
  ASSERT_TRUE(without && with);
  const double plain = nanoseconds_per_step(*without);
  const double profiled = nanoseconds_per_step(*with);
  const double cost = profiled - plain;
  fmt::print("profiling costs {:.1f} ns a step ({:.1f} ns without): {:.2f} us for 50 steps\n", cost,
             plain, cost * 50e-3);
  RecordProperty("profiling_ns_per_step", fmt::format("{:.1f}", cost));
  // bench/profiler.cc measures the share of a real decode step (docs/performance.md). Here an
  // order of magnitude more is let pass for loaded machines; a lock or an allocation a call is not.
  EXPECT_LT(cost, test::can_count_allocations() ? 300.0 : 5000.0);
}

}  // namespace
}  // namespace volta
