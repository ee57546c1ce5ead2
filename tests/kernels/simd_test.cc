// Instruction sets by name, and that the chosen one is the one that runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "hwy/targets.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/cpu.h"

namespace volta::test {
namespace {

TEST(Simd, NamesDiffer) {
  std::set<std::string> names;
  for (const cpu::Simd simd : cpu::kAllSimd) names.insert(cpu::simd_name(simd));
  EXPECT_EQ(names, (std::set<std::string>{"sse4", "avx2", "avx512-novnni", "avx512", "avx512-bf16",
                                          "amx"}));
  EXPECT_STREQ(cpu::simd_name(static_cast<cpu::Simd>(9)), "?");
}

TEST(Simd, EachSetIncludesThoseBeforeIt) {
  // A binary for newer CPUs alone (VOLTA_MARCH) has no kernels for the first ones.
  const auto first = std::ranges::find_if(cpu::kAllSimd, cpu::simd_available);
  ASSERT_NE(first, cpu::kAllSimd.end());
  const auto missing = std::find_if_not(first, cpu::kAllSimd.end(), cpu::simd_available);
  EXPECT_TRUE(std::none_of(missing, cpu::kAllSimd.end(), cpu::simd_available));
  EXPECT_FALSE(cpu::simd_available(static_cast<cpu::Simd>(9)));
}

TEST(Simd, TheBestOneIsTheLastThatPays) {
  const cpu::Simd best = cpu::best_simd();
  EXPECT_TRUE(cpu::simd_available(best));
  const bool dot = __builtin_cpu_is("amd") && cpu::simd_available(cpu::Simd::kAvx512Bf16);
  EXPECT_EQ(best == cpu::Simd::kAvx512Bf16, dot && !cpu::simd_available(cpu::Simd::kAmx));
  for (const cpu::Simd simd : cpu::kAllSimd) {
    if (simd == cpu::Simd::kAvx512Bf16 && !dot) continue;
    EXPECT_TRUE(simd <= best || !cpu::simd_available(simd)) << cpu::simd_name(simd);
  }
}

TEST(Simd, AgreesWithHighwaysViewOfTheMachine) {
  const auto runs = [](std::int64_t target) {
    return (static_cast<std::int64_t>(hwy::SupportedTargets()) &
            static_cast<std::int64_t>(HWY_TARGETS) & target) != 0;
  };
  EXPECT_EQ(cpu::simd_available(cpu::Simd::kAvx2), runs(HWY_AVX2));
  const bool avx512 = runs(HWY_AVX3);
  EXPECT_EQ(cpu::simd_available(cpu::Simd::kAvx512NoVnni), avx512);
  EXPECT_EQ(cpu::simd_available(cpu::Simd::kAvx512),
            avx512 && __builtin_cpu_supports("avx512vnni"));
  EXPECT_EQ(cpu::simd_available(cpu::Simd::kAmx), cpu::amx_permitted());
  EXPECT_EQ(cpu::amx_refused(), cpu::has_amx() && !cpu::amx_permitted());
}

}  // namespace
}  // namespace volta::test
