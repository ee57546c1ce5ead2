// Reads the kernel's accounts: sched affinity, cgroups, /proc and /sys.
#include "base/cpu.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "base/text.h"

namespace volta {

namespace {

// The text of a file of the kernel's, whose size is not known before it is read; "" when there is
// none.
std::string read_kernel_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

// The part of `text` up to `separator`, which is cut off `text` together with it.
std::string_view take_until(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return head;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// quota / period in CPUs; nothing when either is no positive number ("max", -1).
std::optional<double> quota_cpus(std::string_view quota, std::string_view period) {
  const Result<double> q = parse_float(trim(quota), "quota", 1);
  const Result<double> p = parse_float(trim(period), "period", 1);
  if (!q || !p) return std::nullopt;
  return *q / *p;
}

std::optional<double> quota_of_group(const std::string& folder, bool v2) {
  if (v2) {
    const std::string text = read_kernel_file(join_path(folder, "cpu.max"));
    std::string_view rest = text;
    const std::string_view quota = take_until(rest, ' ');
    return quota_cpus(quota, rest);
  }
  return quota_cpus(read_kernel_file(join_path(folder, "cpu.cfs_quota_us")),
                    read_kernel_file(join_path(folder, "cpu.cfs_period_us")));
}

// The tightest quota from `group` up to the mount point. Inside a container the group's path may
// not be visible; the mount point itself, which then is the container's group, is always looked at.
std::optional<double> tightest_quota(const std::string& mount, std::string_view group, bool v2) {
  std::optional<double> tightest;
  std::string path(group);
  for (;;) {
    const std::string folder = mount + (path == "/" ? "" : path);
    if (const auto quota = quota_of_group(folder, v2)) {
      tightest = std::min(tightest.value_or(*quota), *quota);
    }
    if (path.size() <= 1) return tightest;
    path = parent_path(path);
  }
}

// The value of the first "key<spaces>: value" line of /proc/cpuinfo or /proc/self/status.
std::string_view find_field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    if (trim(take_until(line, ':')) == key) return trim(line);
  }
  return {};
}

int affinity_cpu_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(CPU_COUNT(&set), 1);
  return static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

// "32K" or "2M" in bytes; 0 when it is neither.
int64_t parse_cache_size(std::string_view text) {
  int64_t unit = 1;
  if (text.ends_with('K')) unit = int64_t{1} << 10;
  if (text.ends_with('M')) unit = int64_t{1} << 20;
  if (unit != 1) text.remove_suffix(1);
  return parse_int<int64_t>(text, "cache size", 0, int64_t{1} << 32).value_or(0) * unit;
}

void read_caches(CpuInfo& info) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string level = read_kernel_file(folder + "level");
    if (level.empty()) return;
    if (trim(read_kernel_file(folder + "type")) == "Instruction") continue;
    const std::string size = read_kernel_file(folder + "size");
    const int64_t bytes = parse_cache_size(trim(size));
    if (trim(level) == "1") info.l1d_bytes = bytes;
    if (trim(level) == "2") info.l2_bytes = bytes;
    if (trim(level) == "3") info.l3_bytes = bytes;
  }
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const std::string& cgroup_root,
                                       std::string_view proc_cgroup) {
  std::optional<double> tightest;
  while (!proc_cgroup.empty()) {
    // "0::/path" is the v2 group, "4:cpu,cpuacct:/path" a v1 group.
    std::string_view path = take_until(proc_cgroup, '\n');
    const bool v2 = take_until(path, ':') == "0";
    std::string_view controllers = take_until(path, ':');
    std::optional<double> quota;
    if (v2) {
      quota = tightest_quota(cgroup_root, path, true);
    } else {
      const std::string joined(controllers);
      bool has_cpu = false;
      while (!controllers.empty()) has_cpu |= take_until(controllers, ',') == "cpu";
      if (!has_cpu) continue;
      // Mounted under the controllers' joint name, with a link from each.
      const std::string mount = join_path(cgroup_root, joined);
      quota =
          tightest_quota(is_directory(mount) ? mount : join_path(cgroup_root, "cpu"), path, false);
    }
    if (quota) tightest = std::min(tightest.value_or(*quota), *quota);
  }
  return tightest;
}

int usable_cpu_count() {
  const int affinity = affinity_cpu_count();
  const auto quota = cgroup_cpu_quota("/sys/fs/cgroup", read_kernel_file("/proc/self/cgroup"));
  if (!quota || *quota >= affinity) return affinity;
  return std::max(static_cast<int>(std::ceil(*quota)), 1);
}

std::string_view best_isa_name() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return "avx512";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
  if (__builtin_cpu_supports("sse4.2")) return "sse4";
  return "scalar";
}

CpuInfo cpu_info() {
  static constexpr std::array<std::string_view, 14> kFlags = {
      "sse4_2",   "f16c",     "fma",      "avx2",        "avx_vnni",    "avx512f",     "avx512bw",
      "avx512cd", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16"};
  CpuInfo info;
  const std::string text = read_kernel_file("/proc/cpuinfo");
  const std::string_view model = find_field(text, "model name");
  info.model = model.empty() ? "unknown" : std::string(model);
  std::string_view flags = find_field(text, "flags");
  while (!flags.empty()) {
    const std::string_view flag = take_until(flags, ' ');
    if (std::ranges::find(kFlags, flag) != kFlags.end()) info.flags.emplace_back(flag);
  }
  read_caches(info);
  info.online_cpus = static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
  info.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return info;
}

int64_t peak_rss_bytes() {
  const std::string text = read_kernel_file("/proc/self/status");
  std::string_view value = find_field(text, "VmHWM");  // "12345 kB"
  return parse_int<int64_t>(take_until(value, ' '), "VmHWM", 0, int64_t{1} << 50).value_or(0) *
         1024;
}

}  // namespace volta
