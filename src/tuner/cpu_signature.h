// What a tuning result belongs to: this kind of CPU and no other. It measures nothing.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cpu/cpu.h"

namespace [[gnu::visibility("default")]] volta {
namespace tuner {

/// The data caches that a core sees, in bytes; 0 where unknown. L1d and L2 are a core's, L3 is its
/// cluster's.
struct CacheSizes {
  std::int64_t l1d = 0;
  std::int64_t l2 = 0;
  std::int64_t l3 = 0;
  bool operator==(const CacheSizes&) const = default;
};

/// A kind of CPU.
struct CpuSignature {
  std::string vendor;  ///< As CPUID tells it: "AuthenticAMD", "GenuineIntel", ...
  int family = 0;
  int model = 0;
  int stepping = 0;
  CacheSizes caches;
  std::string isa;  ///< The best instruction set that Volta has for it.
  bool operator==(const CpuSignature&) const = default;
};

/// The CPU of this machine. Read once a process: afterwards it costs a copy.
CpuSignature cpu_signature();

/// Short, unique, of letters, digits and '-' alone, so that it is a file's name:
/// "authenticamd-25-97-2-32k-1024k-32768k-avx512".
std::string to_string(const CpuSignature& signature);

/// Family, model and stepping from the register eax of CPUID's leaf 1 (Intel's manual, volume 2A,
/// "CPUID"): the extended fields count where the base ones are full.
struct CpuVersion {
  int family = 0;
  int model = 0;
  int stepping = 0;
  bool operator==(const CpuVersion&) const = default;
};
CpuVersion decode_cpu_version(std::uint32_t eax);

}  // namespace tuner
}  // namespace volta
