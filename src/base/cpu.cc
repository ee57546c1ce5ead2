// Reads the kernel's information: CPU affinity, cgroups, /proc and /sys.
#include "base/cpu.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <span>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/text.h"

namespace volta {

namespace {

// The text of a kernel file, whose size is not known before it is read; "" if it does not exist or
// cannot be read. This does not use a stream: a stream without memory would treat the file as
// empty, and the limit in the file would be ignored.
std::string read_kernel_file(const std::string& path) {
  const Result<Descriptor> file = open_file(path, O_RDONLY, "open");
  if (!file) return {};
  std::string text;
  std::array<std::byte, 4096> block;
  for (;;) {
    const Result<std::int64_t> bytes = read_up_to(file->get(), block, path);
    if (!bytes) return {};
    std::ranges::transform(std::span(block).first(static_cast<std::size_t>(*bytes)),
                           std::back_inserter(text),
                           [](std::byte byte) { return static_cast<char>(byte); });
    if (*bytes < static_cast<std::int64_t>(block.size())) return text;
  }
}

// Returns the part of `text` up to `separator`, and removes it and the separator from `text`.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return head;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// quota / period in CPUs; nothing if one of them is not a positive number ("max", -1).
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

// A limit of a group in bytes; nothing if there is no limit ("max").
std::optional<std::int64_t> read_bytes(const std::string& folder, std::string_view file) {
  const Result<std::int64_t> bytes =
      parse_int<std::int64_t>(trim(read_kernel_file(join_path(folder, file))), "limit", 0);
  return bytes ? std::optional(*bytes) : std::nullopt;
}

// Sets `limit` to the smaller of two limits, each of which may be missing.
template <typename T>
void tighten(std::optional<T>& limit, const std::optional<T>& other) {
  if (other) limit = std::min(limit.value_or(*other), *other);
}

// The smallest limit from `group` up to the mount point, as read by read_limit(folder, is_v2).
// Inside a container the path of the group may not be visible. The mount point, which is then the
// container's group, is always read.
template <typename T, typename ReadLimit>
std::optional<T> tightest_above(const std::string& mount, std::string_view group, bool v2,
                                const ReadLimit& read_limit) {
  std::optional<T> tightest;
  std::string path(group);
  for (;;) {
    tighten(tightest, read_limit(mount + (path == "/" ? "" : path), v2));
    if (path.size() <= 1) return tightest;
    path = parent_path(path);
  }
}

// The smallest limit over all groups of a process that `controller` governs.
template <typename T, typename ReadLimit>
std::optional<T> tightest_limit(const std::string& root, std::string_view proc_cgroup,
                                std::string_view controller, const ReadLimit& read_limit) {
  std::optional<T> tightest;
  while (!proc_cgroup.empty()) {
    // "0::/path" is the v2 group, "4:cpu,cpuacct:/path" a v1 group.
    std::string_view path = take_until(proc_cgroup, '\n');
    const bool v2 = take_until(path, ':') == "0";
    std::string_view controllers = take_until(path, ':');
    std::string mount = root;
    if (!v2) {
      // The mount point has the joint name of the controllers, with a link for each of them.
      mount = join_path(root, controllers);
      if (!is_directory(mount)) mount = join_path(root, controller);
      bool governs = false;
      while (!controllers.empty()) governs |= take_until(controllers, ',') == controller;
      if (!governs) continue;
    }
    tighten(tightest, tightest_above<T>(mount, path, v2, read_limit));
  }
  return tightest;
}

// The value of the first "key<spaces>: value" line of /proc/cpuinfo or /proc/self/status.
std::string_view find_field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    if (trim(take_until(line, ':')) == key) return trim(line);
  }
  return {};
}

// The number of CPUs in the affinity mask. The kernel rejects a mask that is shorter than its own.
// The length of the kernel's mask is unknown, so longer ones are tried in turn.
int affinity_cpu_count() {
  for (std::size_t sets = 1; sets <= 1024; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);  // Each has CPU_SETSIZE (1024) CPUs.
    if (sched_getaffinity(0, sets * sizeof(cpu_set_t), mask.data()) == 0) {
      int count = 0;
      for (const cpu_set_t& set : mask) count += CPU_COUNT(&set);
      return std::max(count, 1);
    }
    if (errno != EINVAL) break;
  }
  return static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

// "32K" or "2M" in bytes; 0 if the text is invalid.
std::int64_t parse_cache_size(std::string_view text) {
  std::int64_t unit = 1;
  if (text.ends_with('K')) unit = std::int64_t{1} << 10;
  if (text.ends_with('M')) unit = std::int64_t{1} << 20;
  if (unit != 1) text.remove_suffix(1);
  return parse_int<std::int64_t>(text, "cache size", 0, std::int64_t{1} << 32).value_or(0) * unit;
}

void read_caches(CpuInfo& info) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string level = read_kernel_file(folder + "level");
    if (level.empty()) return;
    if (trim(read_kernel_file(folder + "type")) == "Instruction") continue;
    const std::string size = read_kernel_file(folder + "size");
    const std::int64_t bytes = parse_cache_size(trim(size));
    if (trim(level) == "1") info.l1d_bytes = bytes;
    if (trim(level) == "2") info.l2_bytes = bytes;
    if (trim(level) == "3") info.l3_bytes = bytes;
  }
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const std::string& cgroup_root,
                                       std::string_view proc_cgroup) {
  return tightest_limit<double>(cgroup_root, proc_cgroup, "cpu", quota_of_group);
}

MemoryLimits cgroup_memory_limits(const std::string& cgroup_root, std::string_view proc_cgroup) {
  MemoryLimits limits;
  limits.memory = tightest_limit<std::int64_t>(
      cgroup_root, proc_cgroup, "memory", [](const std::string& folder, bool v2) {
        return read_bytes(folder, v2 ? "memory.max" : "memory.limit_in_bytes");
      });
  // Version 1 has no separate limit of swap.
  limits.swap = tightest_limit<std::int64_t>(
      cgroup_root, proc_cgroup, "memory", [](const std::string& folder, bool v2) {
        return v2 ? read_bytes(folder, "memory.swap.max") : std::nullopt;
      });
  return limits;
}

MemoryLimits cgroup_memory_limits() {
  return cgroup_memory_limits("/sys/fs/cgroup", read_kernel_file("/proc/self/cgroup"));
}

std::int64_t usable_memory_bytes(const MemoryLimits& limits, std::int64_t memory,
                                 std::int64_t swap) {
  return std::min(memory, limits.memory.value_or(memory)) +
         std::min(swap, limits.swap.value_or(swap));
}

std::int64_t usable_memory_bytes() {
  static const MemoryLimits limits = cgroup_memory_limits();
  struct sysinfo info = {};
  if (sysinfo(&info) != 0) return limits.memory.value_or(std::numeric_limits<std::int64_t>::max());
  const auto bytes = [&](unsigned long units) {
    return static_cast<std::int64_t>(units) * info.mem_unit;
  };
  return usable_memory_bytes(limits, bytes(info.totalram), bytes(info.totalswap));
}

std::int64_t memory_left_bytes() {
  const auto bytes = [](std::string_view text, std::int64_t unit) {
    return parse_int<std::int64_t>(text, "bytes", 0, std::int64_t{1} << 50).value_or(0) * unit;
  };
  // Pages: total, resident, and of these those of files and shared memory.
  const std::string counts = read_kernel_file("/proc/self/statm");
  std::string_view rest = counts;
  take_until(rest, ' ');
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const std::int64_t resident = bytes(take_until(rest, ' '), page);
  const std::int64_t own = resident - bytes(take_until(rest, ' '), page);
  const std::int64_t left = usable_memory_bytes() - own;

  const std::string machine = read_kernel_file("/proc/meminfo");
  const auto kilobytes = [&](std::string_view key) {
    std::string_view value = find_field(machine, key);  // "12345 kB"
    return bytes(take_until(value, ' '), 1024);
  };
  const std::int64_t free = kilobytes("MemAvailable") + kilobytes("SwapFree");
  return std::max<std::int64_t>(0, free == 0 ? left : std::min(left, free));
}

std::optional<double> cgroup_cpu_quota() {
  return cgroup_cpu_quota("/sys/fs/cgroup", read_kernel_file("/proc/self/cgroup"));
}

int current_cpu() { return sched_getcpu(); }

void leave_cpu(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE || cpu != current_cpu()) return;
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof(all), &all) != 0) return;  // `all` may be too small.
  using Word = unsigned long;
  auto words = std::bit_cast<std::array<Word, sizeof(all) / sizeof(Word)>>(all);
  constexpr int kBits = 8 * sizeof(Word);
  words[static_cast<std::size_t>(cpu / kBits)] &= ~(Word{1} << cpu % kBits);
  const auto others = std::bit_cast<cpu_set_t>(words);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof(others), &others) != 0) return;
  sched_setaffinity(0, sizeof(all), &all);
}

int usable_cpu_count(int affinity, std::optional<double> quota) {
  if (!quota || *quota >= affinity) return std::max(affinity, 1);
  return std::max(static_cast<int>(std::ceil(*quota)), 1);
}

int usable_cpu_count() { return usable_cpu_count(affinity_cpu_count(), cgroup_cpu_quota()); }

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
  info.memory_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return info;
}

std::int64_t peak_rss_bytes() {
  const std::string text = read_kernel_file("/proc/self/status");
  std::string_view value = find_field(text, "VmHWM");  // "12345 kB"
  return parse_int<std::int64_t>(take_until(value, ' '), "VmHWM", 0, std::int64_t{1} << 50)
             .value_or(0) *
         1024;
}

}  // namespace volta
