// Products on Hopper whose left operand lies in registers, and barriers by number, for attention;
// the other instructions are in gemm_sm90_ptx.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/gemm_sm90_ptx.cuh"

#if VOLTA_HOPPER
namespace volta::cuda::hopper {

// clang-format off
#define VOLTA_SUMS_4(i) "+f"(sum[i]), "+f"(sum[(i) + 1]), "+f"(sum[(i) + 2]), "+f"(sum[(i) + 3])
#define VOLTA_SUMS_16(i) \
  VOLTA_SUMS_4(i), VOLTA_SUMS_4((i) + 4), VOLTA_SUMS_4((i) + 8), VOLTA_SUMS_4((i) + 12)
#define VOLTA_WGMMA_64(type)                                                                      \
  asm volatile(                                                                                   \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {"                            \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                    \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"            \
      "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"                                               \
      : VOLTA_SUMS_16(0), VOLTA_SUMS_16(16)                                                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                        \
      : "memory")
#define VOLTA_WGMMA_128(type)                                                                     \
  asm volatile(                                                                                   \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {"                           \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                    \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "          \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "          \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"            \
      "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"                                               \
      : VOLTA_SUMS_16(0), VOLTA_SUMS_16(16), VOLTA_SUMS_16(32), VOLTA_SUMS_16(48)                 \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                        \
      : "memory")
// clang-format on

/// sum[64, 64] += a[64, 16] b[16, 64]. Each warp holds its 16 rows of a as the left operand of
/// multiply_add() (ptx.cuh); b is in shared memory and transposed. Starts the product; until it has
/// ended, a must keep its value.
template <typename T>
__device__ inline void multiply_registers_async(float (&sum)[32], const std::uint32_t (&a)[4],
                                                std::uint64_t b) {
  if constexpr (std::is_same_v<T, bf16>) {
    VOLTA_WGMMA_64("bf16");
  } else {
    static_assert(std::is_same_v<T, f16>);
    VOLTA_WGMMA_64("f16");
  }
}
/// The same for sum[64, 128] += a[64, 16] b[16, 128].
template <typename T>
__device__ inline void multiply_registers_async(float (&sum)[64], const std::uint32_t (&a)[4],
                                                std::uint64_t b) {
  if constexpr (std::is_same_v<T, bf16>) {
    VOLTA_WGMMA_128("bf16");
  } else {
    static_assert(std::is_same_v<T, f16>);
    VOLTA_WGMMA_128("f16");
  }
}

#undef VOLTA_WGMMA_128
#undef VOLTA_WGMMA_64
#undef VOLTA_SUMS_16
#undef VOLTA_SUMS_4

/// Barriers of a block by number, from 1 on; 0 is that of __syncthreads(). One is passed when
/// `threads` threads, a multiple of a warp's, have called either function; those that only arrive
/// do not wait.
__device__ inline void wait_numbered_barrier(int number, int threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(number), "r"(threads) : "memory");
}
__device__ inline void arrive_numbered_barrier(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" : : "r"(number), "r"(threads) : "memory");
}
/// Makes this thread's stores to shared memory visible to wgmma. The others need a barrier besides.
__device__ inline void publish_stores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace volta::cuda::hopper
#endif  // VOLTA_HOPPER
