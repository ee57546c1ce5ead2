#include "base/cpu.h"

#include <gtest/gtest.h>
#include <sched.h>

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

TEST(CpuTest, IsaIsOneOfOurs) {
  const std::string isa(best_isa_name());
  EXPECT_TRUE(isa == "avx512" || isa == "avx2" || isa == "sse4" || isa == "scalar") << isa;
}

TEST(CpuTest, InfoDescribesThisMachine) {
  const CpuInfo info = cpu_info();
  EXPECT_FALSE(info.model.empty());
  EXPECT_GE(info.online_cpus, 1);
  EXPECT_GT(info.memory_bytes, int64_t{64} << 20);
  // Sizes may be hidden (0), but never nonsense.
  EXPECT_LE(info.l1d_bytes, int64_t{4} << 20);
  EXPECT_TRUE(info.l2_bytes == 0 || info.l2_bytes >= info.l1d_bytes);
  if (best_isa_name() == "avx512") {
    EXPECT_NE(std::ranges::find(info.flags, "avx512f"), info.flags.end());
  }
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
