// What instruction sets this machine has. It knows nothing of kernels.
#include "kernels/cpu/simd.h"

#include <cpuid.h>

#include <cstdint>

#include "hwy/detect_targets.h"
#include "kernels/cpu/amx.h"

namespace volta::cpu {
namespace {

bool has_ecx_bit(unsigned leaf, unsigned bit) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(leaf, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit) != 0;
}

// At least what Highway's AVX2 and AVX3 targets are compiled with, where HWY_DISABLE_PCLMUL_AES is
// defined (cmake/VoltaModuleFlags.cmake). Highway's library has a function for this, but is not
// linked, because it spends 2 ms at the start of every program on measuring the CPU's clock. The
// compiler's functions also check that the operating system saves the wide registers.
bool runs_avx2() {
  constexpr unsigned kF16c = 1U << 29;
  constexpr unsigned kLzcnt = 1U << 5;
  // Asked once: on a virtual machine, CPUID is slow.
  static const bool runs =
      __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
      __builtin_cpu_supports("bmi") != 0 && __builtin_cpu_supports("bmi2") != 0 &&
      has_ecx_bit(1, kF16c) && has_ecx_bit(0x80000001, kLzcnt);
  return runs;
}

bool runs_avx512() {
  return runs_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512bw") != 0;
}

/// Whether this binary was compiled for a target of Highway's.
constexpr bool has_kernels(std::int64_t target) {
  return (static_cast<std::int64_t>(HWY_TARGETS) & target) != 0;
}

/// The first letters of the vendor's name in CPUID: "Auth" of AuthenticAMD.
bool is_amd() {
  constexpr unsigned kAuth = 0x68747541;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0 && ebx == kAuth;
}

}  // namespace

bool simd_available(Simd simd) {
  const bool avx512 = has_kernels(HWY_AVX3) && runs_avx512();
  switch (simd) {
    case Simd::kSse4:
      // The baseline always runs; it is SSE4 unless the whole binary was built for something newer.
      return HWY_STATIC_TARGET != HWY_AVX2 && HWY_STATIC_TARGET != HWY_AVX3;
    case Simd::kAvx2:
      return has_kernels(HWY_AVX2) && runs_avx2();
    case Simd::kAvx512NoVnni:
      return avx512;
    case Simd::kAvx512:
      return avx512 && __builtin_cpu_supports("avx512vnni") != 0;
    case Simd::kAvx512Bf16:
      return simd_available(Simd::kAvx512) && __builtin_cpu_supports("avx512bf16") != 0;
    case Simd::kAmx:
      return simd_available(Simd::kAvx512Bf16) && amx_permitted();
  }
  return false;
}

Simd best_simd() {
  static const Simd best = [] {
    if (simd_available(Simd::kAmx)) return Simd::kAmx;
    if (is_amd() && simd_available(Simd::kAvx512Bf16)) return Simd::kAvx512Bf16;
    for (const Simd simd : {Simd::kAvx512, Simd::kAvx512NoVnni, Simd::kAvx2}) {
      if (simd_available(simd)) return simd;
    }
    return Simd::kSse4;
  }();
  return best;
}

bool amx_refused() { return has_amx() && !amx_permitted(); }

const char* simd_name(Simd simd) {
  switch (simd) {
    case Simd::kSse4:
      return "sse4";
    case Simd::kAvx2:
      return "avx2";
    case Simd::kAvx512NoVnni:
      return "avx512-novnni";
    case Simd::kAvx512:
      return "avx512";
    case Simd::kAvx512Bf16:
      return "avx512-bf16";
    case Simd::kAmx:
      return "amx";
  }
  return "?";
}

}  // namespace volta::cpu
