#include "tuner/open_device.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/file.h"
#include "device/cpu_device.h"
#include "support/scoped_env.h"
#include "support/temp_dir.h"
#include "tuner/tuning_cache.h"

namespace volta {
namespace {

using test::ScopedEnv;

const cpu::MatMulTuning* tuning_of(const Result<DeviceHandle>& handle) {
  EXPECT_TRUE(handle);
  const auto cpu = std::dynamic_pointer_cast<CpuDevice>(handle->shared());
  return cpu == nullptr ? nullptr : cpu->tuning().get();
}

TEST(OpenDevice, IsTunedUnlessToldOtherwise) {
  const test::TempDir dir;
  const ScopedEnv place("VOLTA_CACHE_DIR", dir.path().c_str());
  const ScopedEnv unset("VOLTA_TUNING", nullptr);
  const DeviceOptions options = {.simd = cpu::Simd::kSse4};
  EXPECT_EQ(tuning_of(open_device(options)), nullptr);
  tuner::TuningEntry entry;
  entry.shape = {.threads = 2, .m = 1, .n = 64, .k = 32};
  entry.parameters = cpu::default_parameters(cpu::Simd::kSse4, 1);
  entry.parameters.prefetch_bytes = 1024;
  ASSERT_TRUE(tuner::TuningCache::open()->add({&entry, 1}));
  EXPECT_NE(tuning_of(open_device(options)), nullptr);
  const auto other = std::make_shared<cpu::MatMulTuning>();
  EXPECT_EQ(tuning_of(open_device({.tuning = other})), other.get());
  for (const char* word : {"", "on"}) {
    const ScopedEnv env("VOLTA_TUNING", word);
    EXPECT_NE(tuning_of(open_device(options)), nullptr);
  }
  {
    const ScopedEnv env("VOLTA_TUNING", "off");
    EXPECT_EQ(tuning_of(open_device(options)), nullptr);
  }
  const ScopedEnv env("VOLTA_TUNING", "maybe");
  const auto failed = open_device();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failed.error().message(), "VOLTA_TUNING: 'maybe' is neither on nor off");
}

// Each entry is for one set of instructions. Where another one runs, by choice or because this
// machine lacks the entry's, products use their defaults.
TEST(OpenDevice, EntriesForAnotherSetOfInstructionsAreNotUsed) {
  const test::TempDir dir;
  const ScopedEnv place("VOLTA_CACHE_DIR", dir.path().c_str());
  const ScopedEnv unset("VOLTA_TUNING", nullptr);
  tuner::TuningEntry entry;
  entry.simd = cpu::Simd::kAmx;
  entry.shape = {.threads = 2, .m = 1, .n = 64, .k = 32};
  entry.parameters = cpu::default_parameters(cpu::Simd::kAmx, 1);
  entry.parameters.prefetch_bytes = 1024;
  ASSERT_TRUE(tuner::TuningCache::open()->add({&entry, 1}));
  for (const cpu::Simd simd : cpu::kAllSimd) {
    const auto tuning = load_tuning(simd);
    ASSERT_TRUE(tuning) << cpu::simd_name(simd);
    EXPECT_EQ(*tuning != nullptr, simd == cpu::Simd::kAmx) << cpu::simd_name(simd);
    if (!cpu::simd_available(simd)) {
      EXPECT_EQ(open_device({.simd = simd}).error().code(), ErrorCode::kUnsupported);
    } else {
      EXPECT_EQ(tuning_of(open_device({.simd = simd})) != nullptr, simd == cpu::Simd::kAmx);
    }
  }
}

TEST(OpenDevice, TheErrorsOfTheDeviceAreItsOwn) {
  const ScopedEnv env("VOLTA_SIMD", "nonsense");
  EXPECT_EQ(open_device().error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(open_device({.kind = DeviceKind::kCpu, .threads = -1, .simd = cpu::Simd::kSse4})
                .error()
                .code(),
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace volta
