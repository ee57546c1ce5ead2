// Instructions of Hopper that only AttentionGrad uses; the others are in gemm_sm90_ptx.cuh and
// attention_sm90_ptx.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention_sm90_ptx.cuh"

#if VOLTA_HOPPER
namespace volta::cuda::hopper {

// clang-format off
#define VOLTA_SUMS_4(i) "+f"(sum[i]), "+f"(sum[(i) + 1]), "+f"(sum[(i) + 2]), "+f"(sum[(i) + 3])
#define VOLTA_SUMS_16(i) \
  VOLTA_SUMS_4(i), VOLTA_SUMS_4((i) + 4), VOLTA_SUMS_4((i) + 8), VOLTA_SUMS_4((i) + 12)
#define VOLTA_WGMMA_64(type)                                                                      \
  asm volatile(                                                                                   \
      "{\n"                                                                                       \
      ".reg .pred keep;\n"                                                                        \
      "setp.ne.b32 keep, %34, 0;\n"                                                               \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {"                            \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                    \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"            \
      "}, %32, %33, keep, 1, 1, %35, %36;\n"                                                      \
      "}\n"                                                                                       \
      : VOLTA_SUMS_16(0), VOLTA_SUMS_16(16)                                                       \
      : "l"(a), "l"(b), "r"(static_cast<int>(keep)), "n"(kTransposeA ? 1 : 0),                    \
        "n"(kTransposeB ? 1 : 0)                                                                  \
      : "memory")
// clang-format on

/// sum[64, 64] = a[64, 16] b[16, 64] + (keep ? sum : 0), like the wider ones of gemm_sm90_ptx.cuh.
template <typename T, bool kTransposeA, bool kTransposeB>
__device__ inline void multiply_async(float (&sum)[32], std::uint64_t a, std::uint64_t b,
                                      bool keep) {
  if constexpr (std::is_same_v<T, bf16>) {
    VOLTA_WGMMA_64("bf16");
  } else {
    static_assert(std::is_same_v<T, f16>);
    VOLTA_WGMMA_64("f16");
  }
}

#undef VOLTA_WGMMA_64
#undef VOLTA_SUMS_16
#undef VOLTA_SUMS_4

/// Four floats at an address of shared memory, a multiple of 16.
__device__ inline float4 load_four(std::uint32_t address) {
  float4 four;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(address)
               : "memory");
  return four;
}

/// Starts the copy of `bytes` neighbouring bytes to shared memory. Both addresses and the number
/// are multiples of 16. The barrier counts the bytes. One thread calls it.
__device__ inline void copy_bulk(std::uint32_t to, const void* from, int bytes,
                                 std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :
      : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace volta::cuda::hopper
#endif  // VOLTA_HOPPER
