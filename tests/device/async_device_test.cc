// What a device that works by itself, in memory of its own, asks of everybody else: runs return
// early, errors come late, nothing is read before it is there.
#include "support/async_device.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>

#include "device/checking_device.h"
#include "device/helpers.h"
#include "device/profiling_device.h"
#include "device/tensor_ops.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::expect_error;
using test::floats;
using test::values;
using ::testing::ElementsAre;

constexpr std::array kX = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f};

// The small plan with its input in the executable's block.
Result<Executable> load_small(Device& device) {
  return device.load(std::make_shared<const Plan>(test::matmul_relu_plan()),
                     [&](const PlanBinding& binding) -> Result<std::optional<Tensor>> {
                       if (binding.kind == ValueKind::kInput) return std::nullopt;
                       return test::matmul_relu_tensor(binding, device.memory());
                     });
}

// Steps of different streams overtake each other, and those of one stream never do.
TEST(AsyncDevice, StreamsRunOutOfOrder) {
  Plan plan = test::matmul_relu_plan();
  const auto run = [&](std::int32_t stream, std::vector<std::size_t> waits) {
    plan.steps[1].stream = stream;
    plan.steps[1].waits = std::move(waits);
    const auto device = std::make_shared<test::AsyncDevice>(test::cpu());
    auto loaded = device->load(std::make_shared<const Plan>(plan), [&](const PlanBinding& binding) {
      return test::matmul_relu_tensor(binding, device->memory());
    });
    EXPECT_TRUE(loaded);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(loaded->run());
    EXPECT_TRUE(device->synchronize());
    return device->overtakes();
  };
  EXPECT_EQ(run(0, {}), 0);
  EXPECT_EQ(run(1, {0}), 0);
  EXPECT_GT(run(1, {}), 0);  // The second step reads what the first one makes: a wrong plan.
}

TEST(AsyncDevice, ItsMemoryIsOutOfTheHostsReach) {
  const auto device = std::make_shared<test::AsyncDevice>(test::cpu());
  const Tensor x = floats(Shape(2), {1, 2}, device->memory());
  EXPECT_FALSE(x.host_bytes());
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  EXPECT_EQ(write(pipe_ends[1], x.view().data, 1), -1);  // The kernel reads it as the host would.
  EXPECT_EQ(errno, EFAULT);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  EXPECT_THAT(values(x), ElementsAre(1, 2));
}

TEST(AsyncDevice, ARunReturnsBeforeItsWorkIsDone) {
  const auto device = std::make_shared<test::AsyncDevice>(test::cpu());
  auto loaded = load_small(*device);
  ASSERT_TRUE(loaded) << loaded.error().message();
  Tensor x = *loaded->binding("x");
  Tensor y = *loaded->result("y");
  ASSERT_TRUE(x.write<float>(kX));
  ASSERT_TRUE(device->synchronize());
  device->queue().hold(true);
  ASSERT_TRUE(loaded->run());
  EXPECT_EQ(device->queue().pending(), 2u);  // The inputs on their way, and the steps.
  // What is written now is for the next run.
  ASSERT_TRUE(x.write<float>(std::array{9.0f, 9.0f, 9.0f, 9.0f, 9.0f, 9.0f}));
  device->queue().hold(false);
  ASSERT_TRUE(loaded->fetch());
  EXPECT_THAT(values(y), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(values(loaded->output("y")), ElementsAre(0, 1, 0, 1));
  ASSERT_TRUE(loaded->run());
  EXPECT_THAT(values(y), ElementsAre(0, 1, 0, 1));  // Not fetched yet.
  ASSERT_TRUE(loaded->fetch());
  EXPECT_THAT(values(y), ElementsAre(0, 0, 0, 0));
}

// Results are on their way to the host while the host does something else.
TEST(AsyncDevice, ResultsAreCopiedAfterTheRunAndBeforeTheNextOne) {
  const auto device = std::make_shared<test::AsyncDevice>(test::cpu());
  auto loaded = load_small(*device);
  ASSERT_TRUE(loaded) << loaded.error().message();
  Tensor x = *loaded->binding("x");
  const Tensor y = *loaded->result("y");
  ASSERT_TRUE(loaded->run());  // Its input is zeros.
  ASSERT_TRUE(loaded->fetch());
  const std::int64_t waits = device->queue().waits;
  device->queue().hold(true);
  ASSERT_TRUE(x.write<float>(kX));
  ASSERT_TRUE(loaded->run());
  ASSERT_TRUE(loaded->copy_results());
  ASSERT_TRUE(x.write<float>(std::array{9.0f, 9.0f, 9.0f, 9.0f, 9.0f, 9.0f}));
  ASSERT_TRUE(loaded->run());
  EXPECT_EQ(device->queue().pending(), 5u);  // Inputs and steps of both runs, and one copy back.
  EXPECT_EQ(device->queue().waits, waits);
  EXPECT_THAT(values(y), ElementsAre(0, 0, 0, 0));
  device->queue().hold(false);
  ASSERT_TRUE(loaded->synchronize());
  EXPECT_EQ(device->queue().waits, waits + 1);
  EXPECT_THAT(values(y), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(values(loaded->output("y")), ElementsAre(0, 0, 0, 0));
}

// An executable waits for its copy to the host before it frees the host's block.
TEST(AsyncDevice, AnExecutableMayBeGoneBeforeItsResultsAreThere) {
  const auto device = std::make_shared<test::AsyncDevice>(test::cpu());
  {
    auto loaded = load_small(*device);
    ASSERT_TRUE(loaded) << loaded.error().message();
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(loaded->run());
      ASSERT_TRUE(loaded->copy_results());
    }
    EXPECT_GT(device->queue().pending(), 0u);
  }
  EXPECT_EQ(device->queue().pending(), 0u);
  EXPECT_TRUE(device->synchronize());
}

TEST(AsyncDevice, InputsAndResultsAreOneBlockEach) {
  const auto device = std::make_shared<test::AsyncDevice>(test::cpu());
  Graph graph;
  const ValueId a = *graph.input("a", test::f32(Shape(3)));
  const ValueId b = *graph.input("b", test::f32(Shape(3)));
  const ValueId sum = *graph.add_one(Binary{BinaryKind::kAdd}, {a, b});
  const ValueId product = *graph.add_one(Binary{BinaryKind::kMul}, {sum, b});
  const ValueId square = *graph.add_one(Unary{UnaryKind::kSquare}, {product});
  ASSERT_TRUE(graph.output("sum", sum));
  ASSERT_TRUE(graph.output("square", square));
  auto plan = make_plan(graph, *device);
  ASSERT_TRUE(plan) << plan.error().message();
  auto loaded = device->load(std::make_shared<const Plan>(*std::move(plan)),
                             [](const PlanBinding&) { return std::nullopt; });
  ASSERT_TRUE(loaded) << loaded.error().message();
  Tensor host_a = *loaded->binding("a"), host_b = *loaded->binding("b");
  EXPECT_THAT(values(host_a), ElementsAre(0, 0, 0));  // Until somebody writes it.
  const Tensor host_sum = *loaded->result("sum"), host_square = *loaded->result("square");
  expect_error(loaded->result("product"), ErrorCode::kNotFound, "it has: sum, square");
  for (const float scale : {1.0f, 2.0f}) {
    ASSERT_TRUE(host_a.write<float>(std::array{scale, 2 * scale, 3 * scale}));
    ASSERT_TRUE(host_b.write<float>(std::array{1.0f, 1.0f, 2.0f}));
    const std::int64_t to = device->async_memory().copies_from_host;
    const std::int64_t from = device->async_memory().copies_to_host;
    ASSERT_TRUE(loaded->run());
    ASSERT_TRUE(loaded->fetch());
    EXPECT_EQ(device->async_memory().copies_from_host, to + 1);
    EXPECT_EQ(device->async_memory().copies_to_host, from + 1);
    EXPECT_THAT(values(host_sum), ElementsAre(scale + 1, 2 * scale + 1, 3 * scale + 2));
    EXPECT_THAT(values(host_square),
                ElementsAre(std::pow(scale + 1, 2.0f), std::pow(2 * scale + 1, 2.0f),
                            std::pow(2 * (3 * scale + 2), 2.0f)));
  }
}

TEST(AsyncDevice, AFailureMidwayNamesTheOpAndTheNextRunWorks) {
  const auto faulty = std::make_shared<test::FaultyDevice>(test::cpu());
  const auto device = std::make_shared<test::AsyncDevice>(faulty);
  auto loaded = load_small(*device);
  ASSERT_TRUE(loaded) << loaded.error().message();
  Tensor x = *loaded->binding("x");
  const Tensor y = *loaded->result("y");
  ASSERT_TRUE(x.write<float>(kX));
  const std::string text = "step 2 of 2: Unary{relu} 'layer.relu': injected";
  const auto fails = [&](auto report) {
    faulty->run_fuse.arm(2);
    EXPECT_TRUE(loaded->run());
    EXPECT_TRUE(loaded->run());  // Dropped: the one before it fails.
    expect_error(report(), ErrorCode::kDevice, text);
    EXPECT_TRUE(loaded->run());
    EXPECT_TRUE(loaded->fetch());
    EXPECT_THAT(values(y), ElementsAre(0, 1, 0, 1));
  };
  fails([&] { return loaded->fetch(); });
  fails([&] { return loaded->synchronize(); });
  fails([&]() -> Status {
    VOLTA_TRY(loaded->copy_results());  // Dropped, too.
    return loaded->synchronize();
  });
  fails([&] { return device->synchronize(); });
  std::array<float, 4> read{};
  fails([&] { return loaded->output("y")->read<float>(read); });
}

TEST(AsyncDevice, ListenersSeeEachStepDone) {
  const auto device = std::make_shared<test::AsyncDevice>(test::cpu());
  const auto profiling = ProfilingDevice::create(device);
  ASSERT_TRUE(profiling);
  const auto checking = CheckingDevice::create(*profiling);
  ASSERT_TRUE(checking);
  auto loaded = load_small(**checking);
  ASSERT_TRUE(loaded) << loaded.error().message();
  Tensor x = *loaded->binding("x");
  ASSERT_TRUE(x.write<float>(kX));
  ASSERT_TRUE(loaded->run());
  EXPECT_EQ((*profiling)->profile().executions, 1);
  EXPECT_THAT(values(loaded->output("y")), ElementsAre(0, 1, 0, 1));
  ASSERT_TRUE(x.write<float>(std::array{1.0f, NAN, 3.0f, 4.0f, 5.0f, 6.0f}));
  expect_error(loaded->run(), ErrorCode::kNonFinite, "step 1 of 2: MatMul 'layer': output 0");
}

TEST(AsyncDevice, ATensorIsCopiedAndClearedWhereItLies) {
  const auto device = std::make_shared<test::AsyncDevice>(test::cpu());
  Tensor x = floats(Shape(3), {1, 2, 3}, device->memory());
  ASSERT_TRUE(device->synchronize());
  const std::int64_t to = device->async_memory().copies_from_host;
  const Tensor copy = *x.clone_to(device->memory());
  ASSERT_TRUE(x.set_zero());
  EXPECT_EQ(device->async_memory().copies_from_host, to);
  EXPECT_EQ(device->async_memory().copies_to_host, 0);
  EXPECT_THAT(values(copy), ElementsAre(1, 2, 3));
  EXPECT_THAT(values(x), ElementsAre(0, 0, 0));
  EXPECT_THAT(values(*tensor_ops::relu(*device, copy)), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace volta
