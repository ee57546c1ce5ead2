// Instruction sets by name, and that the chosen one is the one that runs.
#include <gtest/gtest.h>

#include <string>

#include "kernels/cpu/cpu.h"

namespace volta::test {
namespace {

constexpr cpu::Simd kAllSimd[] = {cpu::Simd::kSse4, cpu::Simd::kAvx2, cpu::Simd::kAvx512};

TEST(Simd, Names) {
  EXPECT_STREQ(cpu::simd_name(cpu::Simd::kSse4), "sse4");
  EXPECT_STREQ(cpu::simd_name(cpu::Simd::kAvx2), "avx2");
  EXPECT_STREQ(cpu::simd_name(cpu::Simd::kAvx512), "avx512");
  EXPECT_STREQ(cpu::simd_name(static_cast<cpu::Simd>(9)), "?");
}

TEST(Simd, TheBestOneIsTheLastAvailable) {
  cpu::Simd last = cpu::Simd::kSse4;
  bool any = false;
  for (const cpu::Simd simd : kAllSimd) {
    if (!cpu::simd_available(simd)) continue;
    last = simd;
    any = true;
  }
  EXPECT_TRUE(any);
  EXPECT_EQ(cpu::best_simd(), last);
  EXPECT_FALSE(cpu::simd_available(static_cast<cpu::Simd>(9)));
}

TEST(Simd, AgreesWithTheCompilersViewOfTheMachine) {
  EXPECT_EQ(cpu::simd_available(cpu::Simd::kAvx2),
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(cpu::simd_available(cpu::Simd::kAvx512),
            __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
}

}  // namespace
}  // namespace volta::test
