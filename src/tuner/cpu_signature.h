// The kind of CPU that a tuning result is valid for. It measures nothing.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cpu/cpu.h"

namespace [[gnu::visibility("default")]] volta {
namespace tuner {

/// The data caches that a core uses, in bytes; 0 if unknown. L1d and L2 belong to one core, L3 to
/// its cluster of cores.
struct CacheSizes {
  std::int64_t l1d = 0;
  std::int64_t l2 = 0;
  std::int64_t l3 = 0;
  bool operator==(const CacheSizes&) const = default;
};

/// A kind of CPU.
struct CpuSignature {
  std::string vendor;  ///< As CPUID reports it: "AuthenticAMD", "GenuineIntel", ...
  int family = 0;
  int model = 0;
  int stepping = 0;
  CacheSizes caches;
  std::string isa;  ///< The best instruction set that Volta supports on it.
  bool operator==(const CpuSignature&) const = default;
};

/// The CPU of this machine. It is read once per process; later calls only copy it.
CpuSignature cpu_signature();

/// A short unique name of letters, digits and '-' only, so that it can be part of a file name:
/// "authenticamd-25-97-2-32k-1024k-32768k-avx512".
std::string to_string(const CpuSignature& signature);

/// Family, model and stepping from the register eax of CPUID's leaf 1 (Intel's manual, volume 2A,
/// "CPUID"). The extended family counts if the base family is 15, the extended model if it is 6 or
/// 15.
struct CpuVersion {
  int family = 0;
  int model = 0;
  int stepping = 0;
  bool operator==(const CpuVersion&) const = default;
};
CpuVersion decode_cpu_version(std::uint32_t eax);

}  // namespace tuner
}  // namespace volta
