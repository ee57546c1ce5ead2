// What instruction sets this machine has. It knows nothing of kernels.
#include "kernels/cpu/simd.h"

#include "hwy/targets.h"

namespace volta::cpu {
namespace {

/// The targets this binary was compiled for and this machine can run. Highway also checks that the
/// operating system saves the wide registers.
std::int64_t usable_targets() {
  return static_cast<std::int64_t>(HWY_TARGETS) &
         static_cast<std::int64_t>(hwy::SupportedTargets());
}

}  // namespace

bool simd_available(Simd simd) {
  switch (simd) {
    case Simd::kSse4:
      // The baseline always runs; it is SSE4 unless the whole binary was built for something newer.
      return HWY_STATIC_TARGET != HWY_AVX2 && HWY_STATIC_TARGET != HWY_AVX3;
    case Simd::kAvx2:
      return (usable_targets() & HWY_AVX2) != 0;
    case Simd::kAvx512:
      return (usable_targets() & HWY_AVX3) != 0;
  }
  return false;
}

Simd best_simd() {
  if (simd_available(Simd::kAvx512)) return Simd::kAvx512;
  if (simd_available(Simd::kAvx2)) return Simd::kAvx2;
  return Simd::kSse4;
}

const char* simd_name(Simd simd) {
  switch (simd) {
    case Simd::kSse4:
      return "sse4";
    case Simd::kAvx2:
      return "avx2";
    case Simd::kAvx512:
      return "avx512";
  }
  return "?";
}

}  // namespace volta::cpu
