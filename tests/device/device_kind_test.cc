// DeviceKind and CudaDevice: words, the environment, and the answer without a GPU.
#include "device/device_kind.h"

#include "device/cuda_device.h"
#include "device/device_handle.h"
#include "device/helpers.h"
#include "support/scoped_env.h"

namespace volta {
namespace {

using test::expect_error;
using test::ScopedEnv;

TEST(DeviceKind, HasNames) {
  EXPECT_EQ(DeviceKind(DeviceKind::kCpu).name(), "cpu");
  EXPECT_EQ(DeviceKind(DeviceKind::kCuda).name(), "cuda");
}

TEST(DeviceKind, ParsesWords) {
  EXPECT_EQ(*DeviceKind::parse("cpu"), DeviceKind::kCpu);
  EXPECT_EQ(*DeviceKind::parse("cuda"), DeviceKind::kCuda);
  const auto best = CudaDevice::usable() ? DeviceKind::kCuda : DeviceKind::kCpu;
  EXPECT_EQ(*DeviceKind::parse("auto"), best);
  EXPECT_EQ(*DeviceKind::parse("cuda:1"), DeviceKind::kCuda);
  for (const char* word : {"", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:+1", "cuda:1x", "cuda:01",
                           "cuda: 1", "cuda:99999999999", "cuda1", "cpu:0", "auto:0"}) {
    expect_error(DeviceKind::parse(word, "--device"), ErrorCode::kInvalidArgument,
                 "--device: '" + std::string(word) + "' is no device; choose cpu, cuda, cuda:1");
  }
}

TEST(DeviceChoice, KnowsWhichOne) {
  const DeviceChoice first{.kind = DeviceKind::kCuda, .index = 0};
  EXPECT_EQ(*DeviceChoice::parse("cpu"), DeviceChoice());
  EXPECT_EQ(*DeviceChoice::parse("cuda"), first);
  EXPECT_EQ(*DeviceChoice::parse("cuda:0"), first);
  EXPECT_EQ(DeviceChoice::parse("cuda:17")->index, 17);
  const ScopedEnv env("VOLTA_DEVICE", "cuda:3");
  EXPECT_EQ(DeviceChoice::detect()->index, 3);
  EXPECT_EQ(*DeviceKind::detect(), DeviceKind::kCuda);
  if (CudaDevice::usable()) GTEST_SKIP() << "this machine has a usable CUDA device";
  expect_error(DeviceHandle::create(), ErrorCode::kDevice, "CUDA device 3: ");
}

TEST(DeviceKind, DetectsFromTheEnvironment) {
  const auto best = CudaDevice::usable() ? DeviceKind::kCuda : DeviceKind::kCpu;
  const auto detect = [](const char* word) {
    const ScopedEnv env("VOLTA_DEVICE", word);
    return DeviceKind::detect();
  };
  EXPECT_EQ(*detect(nullptr), best);
  EXPECT_EQ(*detect(""), best);
  EXPECT_EQ(*detect("auto"), best);
  EXPECT_EQ(*detect("cpu"), DeviceKind::kCpu);
  EXPECT_EQ(*detect("cuda"), DeviceKind::kCuda);
  expect_error(detect("tpu"), ErrorCode::kInvalidArgument, "VOLTA_DEVICE: 'tpu' is no device");
}

TEST(CudaDevice, SaysWhyItCannotBeUsed) {
  if (CudaDevice::usable()) GTEST_SKIP() << "this machine has a usable CUDA device";
  expect_error(CudaDevice::usable(), ErrorCode::kDevice, "VOLTA_DEVICE=cpu");
  expect_error(CudaDevice::create(), ErrorCode::kDevice, "CUDA device 0: ");
  expect_error(CudaDevice::create({.index = 3}), ErrorCode::kDevice, "CUDA device 3: ");
}

}  // namespace
}  // namespace volta
