// One wrapper for each PTX instruction that has no intrinsic: asynchronous copies into shared
// memory, loads of matrix fragments, and products of fragments on the tensor cores (sm_80 and up).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/common.cuh"

namespace volta::cuda {

/// The address in the window of shared memory that the instructions below expect.
__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Starts a copy of `bytes` (0 to 16) from global memory; the rest of the 16 bytes in shared memory
/// becomes zero. Both addresses are multiples of 16. Only `bytes` bytes are read.
__device__ inline void copy_async_16(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}
/// The same for 16 bytes: one instruction, where a number of bytes takes several more.
__device__ inline void copy_async_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from))
               : "memory");
}
/// Copies up to 15 bytes and returns when they are written; other threads see them after a
/// barrier. The rest of the 16 bytes keeps what it had. For the end of a tensor: compute-sanitizer
/// takes an asynchronous copy for one that reads 16 bytes, even where it reads fewer.
__device__ inline void copy_end(std::uint32_t to, const std::uint8_t* from, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    asm volatile("st.shared.u8 [%0], %1;"
                 :
                 : "r"(to + static_cast<std::uint32_t>(i)), "r"(std::uint32_t{from[i]})
                 : "memory");
  }
}
/// Like the first, but the L1 cache keeps the data for the other blocks on this multiprocessor.
__device__ inline void copy_async_16_cached(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}
/// Starts a copy of 4 bytes, or writes 4 zero bytes if `bytes` is 0.
__device__ inline void copy_async_4(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}
/// Closes a group of copies: those that this thread started since the last call, perhaps none.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most kPending of this thread's groups, the latest ones, are not complete. Other
/// threads see the data after a barrier.
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

/// Loads four matrices of 8x8 elements of 16 bits. Lane i gives the address of row i % 8 of matrix
/// i / 8. Of every matrix, lane i receives elements 2 (i % 4) and 2 (i % 4) + 1 of row i / 4.
__device__ inline void load_matrices(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
/// The same, but the lanes receive the elements of the transposed matrices.
__device__ inline void load_matrices_transposed(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// sum[16, 8] += a[16, 16] b[16, 8] on a warp's fragments, T = bf16 or f16. With g = lane / 4 and
/// t = lane % 4, sum holds rows g and g + 8 of columns 2t and 2t + 1; a holds (g, 2t..), (g + 8,
/// 2t..), (g, 2t + 8..), (g + 8, 2t + 8..); b0 and b1 hold (2t.., g) and (2t + 8.., g).
template <typename T>
__device__ inline void multiply_add(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  if constexpr (std::is_same_v<T, bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same_v<T, f16>);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace volta::cuda
