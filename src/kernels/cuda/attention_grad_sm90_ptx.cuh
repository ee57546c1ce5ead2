// Instructions of Hopper that only AttentionGrad uses; the others are in gemm_sm90_ptx.cuh and
// attention_sm90_ptx.cuh.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_sm90_ptx.cuh"

#if VOLTA_HOPPER
namespace volta::cuda::hopper {

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
