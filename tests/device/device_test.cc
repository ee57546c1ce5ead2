// Device: running a plan step by step, its errors, evaluating one op, and allocating nothing.
#include "device/device.h"

#include <algorithm>
#include <string>

#include "device/helpers.h"
#include "device/op_samples.h"
#include "device/tensor_ops.h"
#include "ops/rules.h"
#include "support/alloc_counter.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::expect_error;
using test::floats;
using test::ints;
using test::values;
using ::testing::ElementsAre;

TEST(Device, DescribesCalls) {
  const Op op = MatMul{.transpose_b = true};
  EXPECT_EQ(describe({.op = &op}), "MatMul{transpose_b}");
  EXPECT_EQ(describe({.op = &op, .label = "h.0"}), "MatMul{transpose_b} 'h.0'");
}

TEST(Device, ExecuteNamesTheStepThatFailed) {
  test::FaultyDevice device(test::cpu());
  auto bound = test::bind_matmul_relu(device);
  ASSERT_TRUE(bound);
  device.run_fuse.arm(2);
  expect_error(bound->run(), ErrorCode::kDevice, "step 2 of 2: Unary{relu} 'layer.relu': injected");
  EXPECT_EQ(device.runs(), 2);
  EXPECT_TRUE(bound->run());  // A failure leaves the plan usable.
  EXPECT_TRUE(device.synchronize());
}

TEST(Device, ExecuteAllocatesNothing) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "allocations cannot be counted here";
  for (const int threads : {1, 2}) {
    const auto cpu = test::cpu(threads);
    test::FaultyDevice device(cpu);
    auto bound = test::bind_matmul_relu(device);
    ASSERT_TRUE(bound);
    ASSERT_TRUE(bound->run());
    const std::int64_t device_before = device.faulty_memory().allocations();
    test::AllocationCounter counter;
    bool ok = true;
    for (int i = 0; i < 100; ++i) ok = bound->run().has_value() && ok;
    const std::int64_t heap = counter.count();
    EXPECT_TRUE(ok);
    EXPECT_EQ(heap, 0);
    EXPECT_EQ(device.faulty_memory().allocations(), device_before);
  }
}

// A graph of one op, planned for `device` and bound to the sample's tensors.
Result<Executable> bind_sample(Device& device, const test::OpSample& sample) {
  Graph graph;
  std::vector<ValueId> inputs;
  const std::uint32_t written = writes(sample.op, sample.inputs.size());
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    const TensorSpec& spec = sample.inputs[i].spec();
    const std::string name = std::to_string(i);
    const bool state = writes_input(written, i);
    VOLTA_TRY(const ValueId id, state ? graph.state(name, spec) : graph.input(name, spec));
    inputs.push_back(id);
  }
  VOLTA_TRY(const std::vector<ValueId> outputs, graph.add(sample.op, inputs));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    VOLTA_TRY(graph.output("y" + std::to_string(i), outputs[i]));
  }
  VOLTA_TRY(Plan plan, make_plan(graph, device));
  return device.load(std::make_shared<const Plan>(std::move(plan)),
                     [&](const PlanBinding& binding) -> Result<Tensor> {
                       return sample.inputs[std::stoul(binding.name)];
                     });
}

TEST(Device, NoOpAllocatesWhenItsPlanRunsAgain) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "allocations cannot be counted here";
  for (const cpu::Simd simd : test::simds()) {
    const auto device = test::cpu(2, simd);
    for (const test::OpSample& sample : test::op_samples()) {
      SCOPED_TRACE(to_string(sample.op) + " on " + cpu::simd_name(simd));
      auto bound = bind_sample(*device, sample);
      ASSERT_TRUE(bound) << bound.error().message();
      const auto first = bound->run();
      ASSERT_TRUE(first) << first.error().message();
      test::AllocationCounter counter;
      const bool again = bound->run().has_value();
      const std::int64_t heap = counter.count();
      EXPECT_TRUE(again);
      EXPECT_EQ(heap, 0);
    }
  }
}

TEST(Device, APlanGivesWhatADirectCallGives) {
  const auto device = test::cpu();
  const std::vector<test::OpSample> planned = test::op_samples();
  const std::vector<test::OpSample> direct = test::op_samples();
  for (std::size_t i = 0; i < planned.size(); ++i) {
    SCOPED_TRACE(to_string(planned[i].op));
    auto bound = bind_sample(*device, planned[i]);
    ASSERT_TRUE(bound) << bound.error().message();
    ASSERT_TRUE(bound->run());
    const auto outputs = tensor_ops::apply(*device, direct[i].op, direct[i].inputs);
    ASSERT_TRUE(outputs);
    for (std::size_t j = 0; j < outputs->size(); ++j) {
      const auto output = bound->output("y" + std::to_string(j));
      ASSERT_TRUE(output) << output.error().message();
      EXPECT_TRUE(std::ranges::equal(*output->host_bytes(), *(*outputs)[j].host_bytes()));
    }
    for (std::size_t j = 0; j < direct[i].inputs.size(); ++j) {
      EXPECT_TRUE(std::ranges::equal(*planned[i].inputs[j].host_bytes(),
                                     *direct[i].inputs[j].host_bytes()));
    }
  }
}

TEST(Device, EvaluatesOneOpFromHostToHost) {
  const auto cpu = test::cpu();
  test::FaultyDevice gpu(cpu, false);
  const std::vector<Tensor> inputs = {floats(Shape(2), {1, -2}), floats(Shape(2), {3, 4})};
  for (Device* device : {static_cast<Device*>(cpu.get()), static_cast<Device*>(&gpu)}) {
    const auto outputs = device->evaluate(Binary{BinaryKind::kMul}, inputs);
    ASSERT_TRUE(outputs) << outputs.error().message();
    ASSERT_EQ(outputs->size(), 1u);
    EXPECT_EQ(outputs->front().buffer()->owner(), host_memory());
    EXPECT_THAT(values(outputs->front()), ElementsAre(3, -8));
  }
  EXPECT_EQ(gpu.faulty_memory().live_bytes(), 0);
}

TEST(Device, EvaluateSaysWhatFailed) {
  const auto cpu = test::cpu();
  const std::vector<Tensor> inputs = {floats(Shape(2), {1, 2}), floats(Shape(3), {1, 2, 3})};
  expect_error(cpu->evaluate(Binary{}, inputs), ErrorCode::kInvalidArgument, "Binary");
  expect_error(cpu->evaluate(Fill{}, {inputs.data(), 1}), ErrorCode::kInvalidArgument,
               "writes its inputs");
  test::FaultyDevice gpu(cpu, false);
  const std::span<const Tensor> one(inputs.data(), 1);
  gpu.faulty_memory().copy_fuse.arm(1);
  expect_error(gpu.evaluate(Unary{}, one), ErrorCode::kDevice, "copy failed");
  gpu.faulty_memory().copy_fuse.arm(2);  // The way back.
  expect_error(gpu.evaluate(Unary{}, one), ErrorCode::kDevice, "copy failed");
  gpu.faulty_memory().allocation_fuse.arm(2);  // The output.
  expect_error(gpu.evaluate(Unary{}, one), ErrorCode::kOutOfMemory, "no memory");
  EXPECT_EQ(gpu.faulty_memory().live_bytes(), 0);
}

// The least that a device must say of itself.
class MinimalDevice final : public Device {
 public:
  DeviceInfo info() const override { return {.id = "minimal", .name = "", .isa = ""}; }
  const std::shared_ptr<MemoryOwner>& memory() const override { return memory_; }
  Status run(const OpCall&) override { return {}; }
  bool supports(const Op&, std::span<const TensorSpec>) const override { return true; }
  std::int64_t workspace_bytes(const Op&, std::span<const TensorSpec>,
                               std::span<const TensorSpec>) const override {
    return 0;
  }

 private:
  std::shared_ptr<MemoryOwner> memory_ = host_memory();
};

TEST(Device, DefaultsAreQuiet) {
  MinimalDevice device;
  EXPECT_TRUE(device.synchronize());
  EXPECT_EQ(device.kernel_parameters(MatMul{}, {}), "");
}

TEST(Device, PrefersPanelsForTheWeightsOfProducts) {
  const auto cpu = test::cpu();
  const TensorSpec weight{DType::kBF16, Shape(3, 5)};
  for (const bool transposed : {false, true}) {
    const MatMul op{.transpose_b = transposed};
    const Encoding encoding = cpu->preferred_encoding(op, 1, weight);
    EXPECT_EQ(encoding.packing, Packing::kPanels);
    EXPECT_EQ(encoding.transposed, transposed);
    EXPECT_TRUE(cpu->preferred_encoding(op, 0, weight).plain());
  }
  EXPECT_TRUE(cpu->preferred_encoding(MatMul{.transpose_a = true}, 1, weight).plain());
  EXPECT_TRUE(cpu->preferred_encoding(Embedding{}, 0, weight).plain());
}

TEST(Device, RefusesThePanelsOfAnotherInstructionSet) {
  const auto cpu = test::cpu();
  TensorSpec weight{DType::kF32, Shape(3, 5)};
  weight.encoding = cpu->preferred_encoding(MatMul{}, 1, weight);
  const TensorSpec x{DType::kF32, Shape(2, 3)};
  EXPECT_TRUE(cpu->supports(MatMul{}, std::array{x, weight}));
  weight.encoding.width *= 2;
  EXPECT_FALSE(cpu->supports(MatMul{}, std::array{x, weight}));
}

}  // namespace
}  // namespace volta
