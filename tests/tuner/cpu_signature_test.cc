// What identifies a CPU: real, stable, and safe as a file's name.
#include "tuner/cpu_signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace volta::tuner {
namespace {

TEST(CpuSignature, DescribesThisMachine) {
  const CpuSignature signature = cpu_signature();
  EXPECT_EQ(signature.vendor.size(), 12u);
  EXPECT_GT(signature.family, 0);
  EXPECT_EQ(signature.isa, cpu::simd_name(cpu::best_simd()));
  EXPECT_EQ(signature, cpu_signature());
}

TEST(CpuSignature, DecodesCpuidsVersions) {
  EXPECT_EQ(decode_cpu_version(0x00A60F12), (CpuVersion{25, 0x61, 2}));  // Zen 4.
  EXPECT_EQ(decode_cpu_version(0x000806F8), (CpuVersion{6, 0x8F, 8}));   // Sapphire Rapids.
  EXPECT_EQ(decode_cpu_version(0x00000543), (CpuVersion{5, 4, 3}));      // A Pentium MMX.
}

TEST(CpuSignature, IsAFileName) {
  CpuSignature signature = {.vendor = "AuthenticAMD",
                            .family = 25,
                            .model = 97,
                            .stepping = 2,
                            .caches = {32 << 10, 1 << 20, 32 << 20},
                            .isa = "avx512"};
  EXPECT_EQ(to_string(signature), "authenticamd-25-97-2-32k-1024k-32768k-avx512");
  signature.vendor = "../ \n\"Evil/";
  EXPECT_EQ(to_string(signature), "evil-25-97-2-32k-1024k-32768k-avx512");
  signature.vendor = "";
  EXPECT_THAT(to_string(signature), testing::StartsWith("unknown-"));
  EXPECT_NE(to_string(cpu_signature()), to_string(signature));
}

}  // namespace
}  // namespace volta::tuner
