#include "base/cpu.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/temp_dir.h"

namespace volta {
namespace {

class CgroupTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = dir_.file(path);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  std::optional<double> quota(std::string_view proc_cgroup) {
    return cgroup_cpu_quota(dir_.path(), proc_cgroup);
  }
  MemoryLimits memory(std::string_view proc_cgroup) {
    return cgroup_memory_limits(dir_.path(), proc_cgroup);
  }

 private:
  test::TempDir dir_;
};

TEST_F(CgroupTest, ReadsVersion2) {
  write("app/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota("0::/app\n"), 1.5);
}

TEST_F(CgroupTest, TheTightestAncestorBinds) {
  write("a/b/cpu.max", "800000 100000\n");
  write("a/cpu.max", "200000 100000\n");
  write("cpu.max", "max 100000\n");
  EXPECT_EQ(quota("0::/a/b\n"), 2.0);
}

TEST_F(CgroupTest, ContainersSeeTheirOwnGroupAtTheMountPoint) {
  write("cpu.max", "300000 100000\n");
  EXPECT_EQ(quota("0::/not/visible/here\n"), 3.0);
  EXPECT_EQ(quota("0::/\n"), 3.0);
}

TEST_F(CgroupTest, ReadsVersion1UnderEitherName) {
  write("cpu,cpuacct/box/cpu.cfs_quota_us", "50000\n");
  write("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("5:memory:/box\n4:cpu,cpuacct:/box\n0::/\n"), 0.5);
  write("cpu/cpu.cfs_quota_us", "400000\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("1:cpu:/\n"), 4.0);
}

TEST_F(CgroupTest, NoLimitIsNothing) {
  EXPECT_FALSE(quota("0::/\n"));
  write("cpu.max", "max 100000\n");
  write("cpu/cpu.cfs_quota_us", "-1\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(quota("0::/\n1:cpu:/\n"));
  EXPECT_FALSE(quota(""));
  EXPECT_FALSE(quota("garbage"));
}

TEST_F(CgroupTest, TheTightestMemoryLimitBinds) {
  write("a/b/memory.max", "max\n");
  write("a/memory.max", "2147483648\n");
  write("a/b/memory.swap.max", "0\n");
  write("memory.max", "4294967296\n");
  const MemoryLimits limits = memory("0::/a/b\n");
  EXPECT_EQ(limits.memory, int64_t{2} << 30);
  EXPECT_EQ(limits.swap, 0);
  EXPECT_EQ(memory("0::/\n").memory, int64_t{4} << 30);
  EXPECT_EQ(memory("0::/\n").swap, std::nullopt);
}

TEST_F(CgroupTest, ReadsMemoryLimitsOfVersion1) {
  write("memory/box/memory.limit_in_bytes", "1048576\n");
  write("cpu/box/memory.limit_in_bytes", "1\n");
  EXPECT_EQ(memory("5:memory:/box\n4:cpu:/box\n").memory, 1 << 20);
  EXPECT_EQ(memory("5:memory:/box\n").swap, std::nullopt);
  EXPECT_EQ(memory("4:cpu:/box\n").memory, std::nullopt);
}

TEST(CpuTest, TheLimitsOfAGroupBindWhatAProcessMayFill) {
  constexpr int64_t kMemory = 64, kSwap = 16;
  EXPECT_EQ(usable_memory_bytes({}, kMemory, kSwap), 80);
  EXPECT_EQ(usable_memory_bytes({.memory = 8, .swap = {}}, kMemory, kSwap), 24);
  EXPECT_EQ(usable_memory_bytes({.memory = 8, .swap = 0}, kMemory, kSwap), 8);
  EXPECT_EQ(usable_memory_bytes({.memory = 1000, .swap = 1000}, kMemory, kSwap), 80);
}

TEST(CpuTest, UsableMemoryIsThatOfTheMachineAtMost) {
  EXPECT_GT(usable_memory_bytes(), int64_t{64} << 20);
  EXPECT_GT(memory_left_bytes(), 0);
  EXPECT_LT(memory_left_bytes(), usable_memory_bytes());
  struct sysinfo info = {};
  ASSERT_EQ(sysinfo(&info), 0);
  EXPECT_LE(usable_memory_bytes(),
            static_cast<int64_t>(info.totalram + info.totalswap) * info.mem_unit);
}

TEST(CpuTest, AQuotaIsRoundedUpToWholeThreads) {
  EXPECT_EQ(usable_cpu_count(16, 1.5), 2);
  EXPECT_EQ(usable_cpu_count(16, 0.25), 1);
  EXPECT_EQ(usable_cpu_count(16, 3.0), 3);
  EXPECT_EQ(usable_cpu_count(1, 1.5), 1);
  EXPECT_EQ(usable_cpu_count(2, 1.5), 2);
  EXPECT_EQ(usable_cpu_count(4, 64.0), 4);
  EXPECT_EQ(usable_cpu_count(4, std::nullopt), 4);
}

TEST(CpuTest, CountFollowsTheAffinityMask) {
  EXPECT_GE(usable_cpu_count(), 1);
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_cpu_count(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(CpuTest, AThreadLeavesACpuAndMayComeBack) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "this process may use one CPU only";
  // The kernel may move it back at any moment, but not each time.
  bool left = false;
  for (int i = 0; i < 100 && !left; ++i) {
    const int cpu = current_cpu();
    ASSERT_GE(cpu, 0);
    leave_cpu(cpu);
    left = current_cpu() != cpu;
  }
  EXPECT_TRUE(left);
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(CpuTest, AThreadStaysWhereItMayRunOnly) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const int cpu = current_cpu();
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(cpu), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  leave_cpu(cpu);
  EXPECT_EQ(current_cpu(), cpu);
  leave_cpu(-1);  // Unknown.
  EXPECT_EQ(current_cpu(), cpu);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(CpuTest, InfoDescribesThisMachine) {
  const CpuInfo info = cpu_info();
  EXPECT_FALSE(info.model.empty());
  EXPECT_GE(info.online_cpus, 1);
  EXPECT_GT(info.memory_bytes, int64_t{64} << 20);
  // Sizes may be hidden (0), but never nonsense.
  EXPECT_LE(info.l1d_bytes, int64_t{4} << 20);
  EXPECT_TRUE(info.l2_bytes == 0 || info.l2_bytes >= info.l1d_bytes);
  // Volta's own code needs it.
  EXPECT_NE(std::ranges::find(info.flags, "sse4_2"), info.flags.end());
}

TEST(CpuTest, PeakMemoryGrowsWithUse) {
  const int64_t before = peak_rss_bytes();
  EXPECT_GT(before, 0);
  const std::vector<char> block(size_t{64} << 20, 'x');
  EXPECT_GE(peak_rss_bytes(), int64_t{64} << 20);
  EXPECT_GE(peak_rss_bytes(), before);
  EXPECT_EQ(block.back(), 'x');
}

}  // namespace
}  // namespace volta
