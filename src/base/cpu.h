// What the machine offers this process: CPUs, instruction sets, caches, memory. For sizing the
// thread pool and large blocks and for the reports that accompany every measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace volta {

/// The CPUs this process may keep busy: the smaller of its affinity mask and its cgroup's CPU quota
/// (v1 or v2) rounded up; at least 1.
int usable_cpu_count();

/// The CPU that the calling thread runs on at this moment; -1 when unknown.
int current_cpu();

/// Moves the calling thread to another CPU if it runs on `cpu` and may run elsewhere. Where it may
/// run stays as it was.
void leave_cpu(int cpu);

/// The tightest CPU quota of a process's cgroups in CPUs (1.5 = one and a half), or nothing when
/// there is none. `cgroup_root` is where cgroups are mounted, `proc_cgroup` the text of the
/// process's /proc/self/cgroup. A quota on an ancestor binds as well.
std::optional<double> cgroup_cpu_quota(const std::string& cgroup_root,
                                       std::string_view proc_cgroup);
/// That of this process.
std::optional<double> cgroup_cpu_quota();

/// What a process's cgroups (v1 or v2) allow it, in bytes; nothing where there is no limit.
struct MemoryLimits {
  std::optional<int64_t> memory;
  std::optional<int64_t> swap;
};
/// The tightest ones, with the arguments of cgroup_cpu_quota. A limit of an ancestor binds as well.
MemoryLimits cgroup_memory_limits(const std::string& cgroup_root, std::string_view proc_cgroup);
/// Those of this process.
MemoryLimits cgroup_memory_limits();

/// The memory and swap together that a process within `limits` may fill on a machine that has these
/// bytes of each.
int64_t usable_memory_bytes(const MemoryLimits& limits, int64_t memory, int64_t swap);
/// That of this process on this machine.
int64_t usable_memory_bytes();

/// A CPU of this machine, for reports. Unknown texts are "unknown", unknown sizes 0.
struct CpuInfo {
  std::string model;  ///< As the vendor writes it.
  std::vector<std::string>
      flags;                 ///< Those that matter to kernels: avx2, fma, avx512f, amx_bf16, ...
  int64_t l1d_bytes = 0;     ///< Per core.
  int64_t l2_bytes = 0;      ///< Per core.
  int64_t l3_bytes = 0;      ///< Per cluster.
  int online_cpus = 0;       ///< Of the whole machine, whatever the quota.
  int64_t memory_bytes = 0;  ///< Physical memory of the machine, whatever the limits.
};
CpuInfo cpu_info();

/// The most physical memory this process ever held (VmHWM), in bytes; 0 when unknown.
int64_t peak_rss_bytes();

}  // namespace volta
