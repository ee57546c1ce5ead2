// DeviceHandle: every way to make one, copies both ways, frees, and the direct calls.
#include "device/device_handle.h"

#include <array>
#include <string>

#include "device/cuda_device.h"
#include "device/helpers.h"
#include "support/fault_device.h"
#include "support/scoped_env.h"

namespace volta {
namespace {

using test::expect_error;
using test::f32;
using test::floats;
using test::ScopedEnv;
using test::values;
using ::testing::ElementsAre;

TEST(DeviceHandle, MakesTheDeviceThatIsAskedFor) {
  auto made = DeviceHandle::create(DeviceKind::kCpu);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->info().id, "cpu");
  DeviceOptions options;
  options.threads = 3;
  options.simd = cpu::Simd::kSse4;
  made = DeviceHandle::create(options);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->info().threads, 3);
  EXPECT_EQ(made->info().isa, "sse4");
  options.threads = -1;
  expect_error(DeviceHandle::create(options), ErrorCode::kInvalidArgument, "-1");
  if (const Status usable = CudaDevice::usable(); !usable) {
    const std::string reason(VOLTA_HAS_CUDA ? usable.error().message() : "no CUDA backend");
    const auto refused = DeviceHandle::create(DeviceKind::kCuda);
    expect_error(refused, ErrorCode::kDevice, reason);
    expect_error(refused, ErrorCode::kDevice, "use the CPU (VOLTA_DEVICE=cpu");
  }
  expect_error(DeviceHandle::wrap(nullptr), ErrorCode::kInvalidArgument, "not null");
}

TEST(DeviceHandle, FollowsTheEnvironment) {
  {
    const ScopedEnv env("VOLTA_DEVICE", "cpu");
    const auto made = DeviceHandle::create();
    ASSERT_TRUE(made);
    EXPECT_EQ(made->info().id, "cpu");
  }
  const ScopedEnv env("VOLTA_DEVICE", "abacus");
  expect_error(DeviceHandle::create(), ErrorCode::kInvalidArgument, "'abacus'");
}

TEST(DeviceHandle, CopiesBothWaysOnAnyDevice) {
  const auto gpu = std::make_shared<test::FaultyDevice>(test::cpu(), false);
  const auto handle = DeviceHandle::wrap(gpu);
  ASSERT_TRUE(handle);
  EXPECT_EQ(&handle->device(), gpu.get());
  EXPECT_EQ(handle->shared(), gpu);

  const auto a = handle->copy_to_device(floats(Shape(2, 2), {1, 2, 3, 4}));
  const auto b = handle->copy_to_device(Shape(2, 2), std::array{0.0f, 1.0f, -1.0f, 0.0f});
  ASSERT_TRUE(a && b);
  EXPECT_FALSE(a->host_accessible());
  const auto product = handle->matmul(*a, *b);
  ASSERT_TRUE(product) << product.error().message();
  EXPECT_THAT(values(handle->copy_to_host(*product)), ElementsAre(-2, 1, -4, 3));
  std::array<float, 4> direct{};
  ASSERT_TRUE(handle->copy_to_host(*handle->relu(*product), direct));
  EXPECT_THAT(direct, ElementsAre(0, 1, 0, 3));
  const auto zeros = handle->copy_to_device(Shape(1, 4), std::array{0.0f, 0.0f, 0.0f, 0.0f});
  EXPECT_THAT(values(handle->softmax(*zeros)), ElementsAre(0.25f, 0.25f, 0.25f, 0.25f));

  expect_error(handle->copy_to_device(Shape(3), std::array{1.0f}), ErrorCode::kInvalidArgument,
               "f32[3]");
  std::array<float, 3> small{};
  expect_error(handle->copy_to_host(*product, small), ErrorCode::kInvalidArgument, "f32[2, 2]");
  expect_error(handle->relu(floats(Shape(1), {1})), ErrorCode::kInvalidArgument, "copy it there");
}

TEST(DeviceHandle, FailuresOfTheDeviceComeThrough) {
  const auto gpu = std::make_shared<test::FaultyDevice>(test::cpu(), false);
  const auto handle = *DeviceHandle::wrap(gpu);
  Tensor x = *handle.copy_to_device(Shape(1), std::array{1.0f});
  std::array<float, 1> out{};
  gpu->synchronize_fuse.arm(1);
  expect_error(handle.copy_to_host(x), ErrorCode::kDevice, "late failure");
  gpu->synchronize_fuse.arm(1);
  expect_error(handle.copy_to_host(x, out), ErrorCode::kDevice, "late failure");
  gpu->synchronize_fuse.arm(1);
  expect_error(handle.synchronize(), ErrorCode::kDevice, "late failure");
  gpu->synchronize_fuse.arm(1);
  expect_error(handle.free(x), ErrorCode::kDevice, "late failure");
  gpu->faulty_memory().allocation_fuse.arm(1);
  expect_error(handle.alloc(f32(Shape(4))), ErrorCode::kOutOfMemory, "no memory");
  gpu->faulty_memory().allocation_fuse.arm(1);
  expect_error(handle.copy_to_device(Shape(1), out), ErrorCode::kOutOfMemory, "no memory");
}

TEST(DeviceHandle, FreesWhatNobodyElseUses) {
  const auto gpu = std::make_shared<test::FaultyDevice>(test::cpu(), false);
  const auto handle = *DeviceHandle::wrap(gpu);
  Tensor tensor = *handle.alloc(f32(Shape(16)));
  EXPECT_EQ(gpu->faulty_memory().live_bytes(), 64);
  {
    const Tensor shared = *tensor.slice(0, 4);
    expect_error(handle.free(tensor), ErrorCode::kInvalidArgument, "shares its memory");
  }
  ASSERT_TRUE(handle.free(tensor));
  EXPECT_EQ(gpu->faulty_memory().live_bytes(), 0);
  EXPECT_EQ(tensor.bytes(), 0);
  EXPECT_TRUE(handle.free(tensor));  // Empty already.
  Tensor foreign = floats(Shape(1), {1});
  expect_error(handle.free(foreign), ErrorCode::kInvalidArgument, "not in the memory");
  EXPECT_EQ(foreign.bytes(), 4);
}

TEST(DeviceHandle, RunsCallsAndPlans) {
  const auto handle = *DeviceHandle::create(DeviceKind::kCpu);
  const Op op = Unary{UnaryKind::kSquare};
  const Tensor x = floats(Shape(2), {3, -4});
  const Tensor y = *handle.alloc(x.spec());
  const std::array inputs = {x.view()};
  const std::array outputs = {y.view()};
  ASSERT_TRUE(handle.run({.op = &op, .inputs = inputs, .outputs = outputs}));
  EXPECT_THAT(values(y), ElementsAre(9, 16));

  auto bound = test::bind_matmul_relu(handle.device());
  ASSERT_TRUE(bound);
  ASSERT_TRUE(bound->run());
  EXPECT_TRUE(handle.synchronize());
  EXPECT_THAT(values(bound->output("y")), ElementsAre(0, 1, 0, 1));
}

}  // namespace
}  // namespace volta
