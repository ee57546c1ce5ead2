// CheckingDevice: finds the first non-finite result, in every float type and on every kind of
// memory, and stays out of the way otherwise.
#include "device/checking_device.h"

#include <array>
#include <limits>

#include "device/helpers.h"
#include "device/tensor_ops.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::expect_error;
using test::floats;
using test::values;
using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::shared_ptr<CheckingDevice> checking(std::shared_ptr<Device> inner) {
  auto made = CheckingDevice::create(std::move(inner));
  EXPECT_TRUE(made);
  return *made;
}

TEST(CheckingDevice, ForwardsWhatItIsAsked) {
  const auto cpu = test::cpu();
  const auto device = checking(cpu);
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
  const std::array inputs = {floats(Shape(1), {0})};
  EXPECT_TRUE(device->evaluate(Unary{UnaryKind::kLog}, inputs));  // Folding may make infinities.
  expect_error(CheckingDevice::create(nullptr), ErrorCode::kInvalidArgument, "not null");
}

TEST(CheckingDevice, PassesFinitePlans) {
  const auto device = checking(test::cpu());
  auto bound = test::bind_matmul_relu(*device);
  ASSERT_TRUE(bound);
  ASSERT_TRUE(bound->run());
  EXPECT_THAT(values(bound->output("y")), ElementsAre(0, 1, 0, 1));
}

TEST(CheckingDevice, NamesTheFirstOpOfAPlan) {
  const auto cpu = test::cpu();
  test::FaultyDevice gpu(cpu, false);
  for (const bool on_gpu : {false, true}) {
    const auto device = checking(on_gpu ? std::shared_ptr<Device>(&gpu, [](Device*) {})
                                        : std::shared_ptr<Device>(cpu));
    auto bound = test::bind_matmul_relu(*device);
    ASSERT_TRUE(bound);
    Tensor x = *bound->binding("x");
    ASSERT_TRUE(x.write<float>(std::array{1.0f, 2.0f, 3.0f, 4.0f, kNan, 6.0f}));
    expect_error(bound->run(), ErrorCode::kNonFinite,
                 "step 1 of 2: MatMul 'layer': output 0 f32[2, 2] is not finite at element 2 "
                 "([1, 0]); its input 0 already was, at element 4");
  }
}

TEST(CheckingDevice, SaysWhenTheInputsWereGood) {
  const auto device = checking(test::cpu());
  expect_error(tensor_ops::log(*device, floats(Shape(2, 2), {1, 0, 1, 1})), ErrorCode::kNonFinite,
               "output 0 f32[2, 2] is not finite at element 1 ([0, 1]); its inputs are finite");
}

TEST(CheckingDevice, LooksAtWrittenInputs) {
  const auto device = checking(test::cpu());
  const std::array good = {floats(Shape(2), {1, 2}), floats(Shape(2), {1, 2})};
  EXPECT_TRUE(tensor_ops::apply(*device, Accumulate{1.0f}, good));
  const std::array bad = {floats(Shape(2), {1, 2}), floats(Shape(2), {1, -kInf})};
  expect_error(tensor_ops::apply(*device, Accumulate{1.0f}, bad), ErrorCode::kNonFinite,
               "written input 0 f32[2] is not finite at element 1 ([1]); its input 1 already was");
}

TEST(CheckingDevice, DoesNotBlameAnInputThatTheResultOverwrote) {
  const auto device = checking(test::cpu());
  const Op op = Unary{UnaryKind::kReciprocal};
  const Tensor x = floats(Shape(2), {0, 1});
  const std::array in_place = {x.view()};
  const auto status = device->run({.op = &op, .inputs = in_place, .outputs = in_place});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), ::testing::EndsWith("is not finite at element 0 ([0])"));
}

TEST(CheckingDevice, KnowsEveryFloatType) {
  const auto device = checking(test::cpu());
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    EXPECT_TRUE(tensor_ops::cast(*device, floats(Shape(2), {1, -2}), dtype));
    expect_error(tensor_ops::cast(*device, floats(Shape(3), {1, 2, kInf}), dtype),
                 ErrorCode::kNonFinite, "is not finite at element 2");
  }
  EXPECT_TRUE(tensor_ops::argmax(*device, floats(Shape(2), {1, kNan})));  // i32: nothing to check.
}

TEST(CheckingDevice, FailuresOfTheInnerDeviceComeThrough) {
  const auto gpu = std::make_shared<test::FaultyDevice>(test::cpu(), false);
  const auto device = checking(gpu);
  const Tensor x = floats(Shape(2), {1, 2}, gpu->memory());
  gpu->run_fuse.arm(1);
  expect_error(tensor_ops::relu(*device, x), ErrorCode::kDevice, "the device failed");
  gpu->synchronize_fuse.arm(1);
  expect_error(tensor_ops::relu(*device, x), ErrorCode::kDevice, "late failure");
  gpu->faulty_memory().copy_fuse.arm(1);
  expect_error(tensor_ops::relu(*device, x), ErrorCode::kDevice, "copy failed");
  const Tensor zero = floats(Shape(1), {0}, gpu->memory());
  gpu->faulty_memory().copy_fuse.arm(2);  // The output is copied, then the input to blame.
  expect_error(tensor_ops::log(*device, zero), ErrorCode::kDevice, "copy failed");
}

}  // namespace
}  // namespace volta
