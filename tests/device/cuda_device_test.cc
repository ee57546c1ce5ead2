// CudaDevice on a machine with a GPU: memory, plans, faults, and what cannot be opened. Skipped
// where no GPU can be used; device_kind_test.cc has the answers there.
#include "device/cuda_device.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/gpu_fixture.h"
#include "device/helpers.h"
#include "support/scoped_env.h"

namespace volta {
namespace {

using test::expect_error;
using test::f32;
using test::floats;
using test::i32;
using test::ints;
using test::values;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Gpu : public test::GpuTest {};

TEST_F(Gpu, SaysWhatItIs) {
  const DeviceInfo info = gpu_->info();
  EXPECT_EQ(info.id, "cuda:0");
  EXPECT_THAT(info.isa, HasSubstr("sm_"));
  EXPECT_GT(info.memory_bytes, std::int64_t{1} << 30);
  EXPECT_FALSE(gpu_->memory()->host_accessible());
}

TEST_F(Gpu, CopiesFillsAndReads) {
  const Tensor x = floats(Shape(4), {1, 2, 3, 4}, gpu_->memory());
  EXPECT_THAT(values(x), ElementsAre(1, 2, 3, 4));
  Tensor y = *Tensor::zeros(f32(Shape(4)), gpu_->memory());
  EXPECT_THAT(values(y), ElementsAre(0, 0, 0, 0));
  ASSERT_TRUE(y.buffer()->copy_from(y.offset() + 4, *x.buffer(), x.offset(), 8));
  EXPECT_THAT(values(y), ElementsAre(0, 1, 2, 0));
}

// The first run launches each step, the second records them, and the others replay the record.
TEST_F(Gpu, EveryRunOfAPlanReadsItsInputs) {
  auto bound = test::bind_matmul_relu(*gpu_);
  ASSERT_TRUE(bound) << bound.error().message();
  for (int run = 0; run < 4; ++run) {
    const auto scale = static_cast<float>(run + 1);
    Tensor x = *bound->binding("x");
    ASSERT_TRUE(
        x.write<float>(std::array{scale, 2 * scale, 3 * scale, 4 * scale, 5 * scale, 6 * scale}));
    ASSERT_TRUE(bound->run());
    EXPECT_THAT(values(bound->output("y")), ElementsAre(0, scale, 0, scale)) << "run " << run;
  }
}

Graph embedding_graph() {
  Graph graph;
  const ValueId table = *graph.parameter("table", f32(Shape(5, 3)));
  const ValueId ids = *graph.input("ids", i32(Shape(2)));
  const ValueId y = *graph.add_one(Embedding{}, {table, ids});
  EXPECT_TRUE(graph.output("y", y));
  return graph;
}

TEST_F(Gpu, ABadIndexIsReportedOnceAndNamesTheOp) {
  const Graph graph = embedding_graph();
  auto plan = make_plan(graph, *gpu_);
  ASSERT_TRUE(plan) << plan.error().message();
  auto bound = gpu_->load(std::make_shared<const Plan>(*std::move(plan)),
                          [&](const PlanBinding& binding) -> Result<std::optional<Tensor>> {
                            if (binding.name == "ids") return std::nullopt;
                            return Tensor::zeros(binding.spec, gpu_->memory());
                          });
  ASSERT_TRUE(bound) << bound.error().message();
  Tensor ids = *bound->binding("ids");
  for (int run = 0; run < 4; ++run) {
    ASSERT_TRUE(ids.write<std::int32_t>(std::array{1, 5}));
    ASSERT_TRUE(bound->run());
    expect_error(bound->synchronize(), ErrorCode::kInvalidArgument, "Embedding");
    ASSERT_TRUE(ids.write<std::int32_t>(std::array{1, 4}));
    ASSERT_TRUE(bound->run());
    EXPECT_TRUE(bound->synchronize());
  }
}

TEST_F(Gpu, WhatDoesNotFitIsRefusedWithNumbersAndHarmsNothing) {
  const std::int64_t bytes = 16 * gpu_->info().memory_bytes;
  const auto buffer = DeviceBuffer::allocate(gpu_->memory(), bytes);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(buffer.error().message(), HasSubstr("free"));
  EXPECT_THAT(values(floats(Shape(2), {1, 2}, gpu_->memory())), ElementsAre(1, 2));
  EXPECT_TRUE(gpu_->synchronize());
}

TEST_F(Gpu, ThreadsRunTheirOwnPlans) {
  const auto work = [&] {
    auto bound = test::bind_matmul_relu(*gpu_);
    ASSERT_TRUE(bound) << bound.error().message();
    for (int run = 0; run < 20; ++run) {
      ASSERT_TRUE(bound->run());
      ASSERT_EQ(values(bound->output("y")), (std::vector<float>{0, 1, 0, 1}));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Gpu, StopsWhenItIsTold) {
  bool stop = false;
  const auto device = CudaDevice::create({.index = 0, .interrupted = [&] { return stop; }});
  ASSERT_TRUE(device);
  auto bound = test::bind_matmul_relu(**device);
  ASSERT_TRUE(bound);
  for (int run = 0; run < 3; ++run) {
    stop = false;
    EXPECT_TRUE(bound->run());
    stop = true;
    expect_error(bound->run(), ErrorCode::kInterrupted, "interrupted");
  }
}

TEST_F(Gpu, OtherGpusAndArchitecturesAreRefused) {
  expect_error(CudaDevice::create({.index = 99}), ErrorCode::kDevice, "CUDA device 99: ");
  expect_error(CudaDevice::create({.index = -1}), ErrorCode::kDevice, "CUDA device -1: ");
  for (const char* const word : {"75", "1000", "sm_80", "80a"}) {
    const test::ScopedEnv limit("VOLTA_CUDA_ARCH", word);
    expect_error(CudaDevice::create(), ErrorCode::kInvalidArgument, "VOLTA_CUDA_ARCH");
  }
  const test::ScopedEnv limit("VOLTA_CUDA_ARCH", "80");
  const auto device = CudaDevice::create();
  ASSERT_TRUE(device) << device.error().message();
  EXPECT_EQ((*device)->info().isa, "sm_80");
}

// Many updates of each kind, of odd sizes; and sums into one target, which must not be
// one group.
Graph updates_graph(bool momentum) {
  Graph graph;
  const ValueId schedule = *graph.input("schedule", f32(Shape(3)));
  const ValueId stats = *graph.input("stats", f32(Shape(3)));
  const ValueId total = *graph.state("total", f32(Shape(5)));
  std::vector<ValueId> params, gradients, sums;
  int i = 0;
  for (const std::int64_t size : {1, 5, 64, 1023, 8192, 20001}) {
    const std::string name = std::to_string(i++);
    params.push_back(*graph.parameter("p" + name, f32(Shape(size))));
    gradients.push_back(*graph.input("g" + name, f32(Shape(size))));
    sums.push_back(*graph.state("s" + name, f32(Shape(size))));
  }
  for (std::size_t p = 0; p < params.size(); ++p) {
    const ValueId m = *graph.state("m" + std::to_string(p), graph.spec(params[p]));
    const ValueId v = *graph.state("v" + std::to_string(p), graph.spec(params[p]));
    const float decay = p % 2 == 0 ? 0.1f : 0.0f;
    if (momentum) {
      EXPECT_TRUE(
          graph.add(Sgd{0.9f, decay}, std::vector{params[p], gradients[p], m, schedule, stats}));
    } else {
      EXPECT_TRUE(graph.add(AdamW{.weight_decay = decay},
                            std::vector{params[p], gradients[p], m, v, schedule, stats}));
    }
  }
  for (std::size_t p = 0; p < params.size(); ++p) {
    EXPECT_TRUE(
        graph.add(Accumulate{0.5f + static_cast<float>(p)}, std::vector{sums[p], gradients[p]}));
  }
  for (int times = 0; times < 3; ++times) {
    EXPECT_TRUE(graph.add(Accumulate{2.0f}, std::vector{total, params[1]}));
    EXPECT_TRUE(graph.add(Accumulate{-3.0f}, std::vector{total, sums[1]}));
  }
  EXPECT_TRUE(graph.add(Fill{1.5f}, std::vector{sums[0]}));
  EXPECT_TRUE(graph.add(Fill{-2.5f}, std::vector{sums[3]}));
  for (std::size_t p = 0; p < params.size(); ++p) {
    const ValueId narrow = *graph.add_one(Cast{DType::kBF16}, {params[p]});
    EXPECT_TRUE(graph.output("bf16." + std::to_string(p), narrow));
  }
  return graph;
}

// All bindings and outputs of a plan after some runs, in bytes.
std::vector<std::vector<std::byte>> bytes_after(const Graph& graph, Device& device, int runs,
                                                const std::shared_ptr<StepListener>& listener) {
  std::vector<std::vector<std::byte>> all;
  auto plan = make_plan(graph, device);
  EXPECT_TRUE(plan) << plan.error().message();
  const auto lookup = [&](const PlanBinding& binding) -> Result<std::optional<Tensor>> {
    Tensor host = *Tensor::zeros(binding.spec);
    std::vector<float> numbers;
    for (std::int64_t i = 0; i < host.elements(); ++i) {
      const auto seed = static_cast<std::int64_t>(binding.name.size() + binding.name.back());
      numbers.push_back(static_cast<float>((i * 37 + seed * 11) % 101 - 50) / 64.0f);
    }
    if (binding.name == "schedule") numbers = {0.125f, 0.1f, 0.05f};
    if (binding.name == "stats") numbers = {2.0f, 0.75f, 1.0f};
    if (binding.name.front() == 'v') numbers.assign(numbers.size(), 0.25f);
    EXPECT_TRUE(host.write<float>(numbers));
    return host.clone_to(device.memory());
  };
  auto bound = device.load(std::make_shared<const Plan>(*std::move(plan)), lookup);
  EXPECT_TRUE(bound) << bound.error().message();
  if (listener != nullptr) bound->add_listener(listener);
  for (int run = 0; run < runs; ++run) EXPECT_TRUE(bound->run());
  EXPECT_TRUE(bound->synchronize());
  const auto take = [&](const Result<Tensor>& tensor) {
    ASSERT_TRUE(tensor) << tensor.error().message();
    const Tensor host = *tensor->clone_to(host_memory());
    const auto bytes = *host.host_bytes();
    all.emplace_back(bytes.begin(), bytes.end());
  };
  for (const PlanBinding& binding : bound->plan().bindings) take(bound->binding(binding.name));
  for (const PlanOutput& output : bound->plan().outputs) take(bound->output(output.name));
  return all;
}

// A listener makes a run submit each step by itself.
TEST_F(Gpu, GroupsOfUpdatesGiveTheBitsOfSingleSteps) {
  class Silent final : public StepListener {};
  for (const bool momentum : {false, true}) {
    const Graph graph = updates_graph(momentum);
    const auto single = bytes_after(graph, *gpu_, 3, std::make_shared<Silent>());
    EXPECT_EQ(bytes_after(graph, *gpu_, 3, nullptr), single) << "momentum " << momentum;
    EXPECT_NE(bytes_after(graph, *gpu_, 2, nullptr), single) << "momentum " << momentum;
  }
}

}  // namespace
}  // namespace volta
