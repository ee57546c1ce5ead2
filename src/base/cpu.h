// The resources of the machine for this process: CPUs, instruction sets, caches and memory. They
// determine the size of the thread pool and limit large blocks of memory, and are part of the
// report with every measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace volta {

/// The number of CPUs that a process may use whose affinity mask has `affinity` CPUs: no more than
/// its cgroup's quota, rounded up (1.5: two threads share one and a half CPUs); at least 1.
int usable_cpu_count(int affinity, std::optional<double> quota);
/// The same for this process: its affinity mask and its cgroup's CPU quota (v1 or v2).
int usable_cpu_count();

/// The CPU on which the calling thread runs at this moment; -1 if unknown.
int current_cpu();

/// Moves the calling thread to another CPU if it runs on `cpu` and may run on others. Its affinity
/// mask is the same afterwards.
void leave_cpu(int cpu);

/// The smallest CPU quota of a process's cgroups and their ancestors in CPUs (1.5 = one and a
/// half); nothing if there is none. `cgroup_root` is the folder where cgroups are mounted,
/// `proc_cgroup` the text of the process's /proc/self/cgroup.
std::optional<double> cgroup_cpu_quota(const std::string& cgroup_root,
                                       std::string_view proc_cgroup);
/// The quota of this process.
std::optional<double> cgroup_cpu_quota();

/// The memory limits of a process's cgroups (v1 or v2) in bytes; nothing if there is no limit.
struct MemoryLimits {
  std::optional<std::int64_t> memory;
  std::optional<std::int64_t> swap;
};
/// The smallest limits of the cgroups and their ancestors. The arguments are those of
/// cgroup_cpu_quota.
MemoryLimits cgroup_memory_limits(const std::string& cgroup_root, std::string_view proc_cgroup);
/// The limits of this process.
MemoryLimits cgroup_memory_limits();

/// The bytes of memory and swap together that a process with these limits may use on a machine with
/// `memory` and `swap` bytes.
std::int64_t usable_memory_bytes(const MemoryLimits& limits, std::int64_t memory,
                                 std::int64_t swap);
/// The same for this process on this machine.
std::int64_t usable_memory_bytes();
/// The bytes that this process can still allocate: usable_memory_bytes() minus what it uses now,
/// and at most what the machine has free, with swap. Mapped files and cached files count as free.
std::int64_t memory_left_bytes();

/// The CPUs of this machine, for reports. An unknown model is "unknown", an unknown size 0.
struct CpuInfo {
  std::string model;  ///< The vendor's name for it.
  std::vector<std::string>
      flags;                   ///< Those that matter to kernels: avx2, fma, avx512f, amx_bf16, ...
  std::int64_t l1d_bytes = 0;  ///< Per core.
  std::int64_t l2_bytes = 0;   ///< Per core.
  std::int64_t l3_bytes = 0;   ///< Per cluster.
  int online_cpus = 0;         ///< Of the whole machine, without regard to quotas.
  std::int64_t memory_bytes = 0;  ///< Physical memory of the machine, without regard to limits.
};
CpuInfo cpu_info();

/// The peak of this process's physical memory (VmHWM), in bytes; 0 if unknown.
std::int64_t peak_rss_bytes();

}  // namespace volta
