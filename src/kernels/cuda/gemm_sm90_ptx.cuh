// One wrapper for each PTX instruction of the products on Hopper (sm_90a). The chapters of the PTX
// ISA are "mbarrier", "Data Movement and Conversion Instructions: Tensor copy" and "Asynchronous
// Warpgroup Level Matrix Multiply-Accumulate Instructions".
//
// The code compiles for sm_90a only; VOLTA_HOPPER says whether it is there.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/ptx.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define VOLTA_HOPPER 1
#else
#define VOLTA_HOPPER 0
#endif

#if VOLTA_HOPPER
namespace volta::cuda::hopper {

// Barriers. A barrier completes a phase when `arrivals` threads have arrived and all bytes that
// they announced have been copied; then the next phase begins. The parity of the phases is 0, 1,
// 0, ... Addresses are those of shared_address().

__device__ inline void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :
               : "r"(barrier), "r"(arrivals)
               : "memory");
}
/// Makes this thread's init_barrier calls visible to the copy engine. The other threads need a
/// __syncthreads besides.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}
/// Arrives at the barrier of block `rank` of the cluster that is where `barrier` is in this block.
__device__ inline void arrive_in(std::uint32_t barrier, unsigned rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n"
      :
      : "r"(barrier), "r"(rank)
      : "memory");
}
/// Arrives, and announces the bytes that the copy engine will bring in this phase.
__device__ inline void arrive_and_expect(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(barrier), "r"(bytes)
               : "memory");
}
/// Waits until the phase of this parity has completed. Before the first phase completes, parity 1
/// counts as completed.
__device__ inline void wait_barrier(std::uint32_t barrier, unsigned parity) {
  unsigned done = 0;
  do {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}

/// Starts the copy of a box (tensor_map.h) to shared memory. The barrier counts its bytes, zeros
/// included. One thread calls it.
__device__ inline void copy_box(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier,
                                int column, int row, int layer) {
  // SAFETY: the map is a parameter of the kernel, whose address the instruction takes as a number.
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];"
      :
      : "r"(to), "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(barrier), "r"(column), "r"(row),
        "r"(layer)
      : "memory");
}
/// The same for all blocks of the cluster in `ranks`, a bit for each: the box comes to the same
/// place in every block, and every block's barrier counts it.
__device__ inline void copy_box_to(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier,
                                   int column, int row, int layer, unsigned ranks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;"
      :
      : "r"(to), "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(barrier), "r"(column), "r"(row),
        "r"(layer), "h"(static_cast<unsigned short>(ranks))
      : "memory");
}
/// Starts the copy of a box from shared memory to global memory and closes a group of such copies.
/// What lies outside of the matrix is not written. Every thread that wrote the box calls
/// publish_writes before; then one thread calls this.
__device__ inline void store_box(const CUtensorMap& map, std::uint32_t from, int column, int row,
                                 int layer) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];\n"
      "cp.async.bulk.commit_group;"
      :
      : "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(from), "r"(column), "r"(row), "r"(layer)
      : "memory");
}
/// Makes this thread's writes to shared memory visible to the copy engine.
__device__ inline void publish_writes() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// Waits until at most kPending of this thread's groups of stores still read shared memory.
template <int kPending>
__device__ inline void wait_for_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(kPending) : "memory");
}
/// Waits until all of this thread's stores are complete.
__device__ inline void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/// Stores four matrices of 8x8 elements of 16 bits to shared memory. Lane i gives the address of
/// row i % 8 of matrix i / 8. Of every matrix, lane i has elements 2 (i % 4) and 2 (i % 4) + 1 of
/// row i / 4.
__device__ inline void store_matrices(std::uint32_t address, std::uint32_t a, std::uint32_t b,
                                      std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(address), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

__device__ inline std::uint32_t load_shared(std::uint32_t address) {
  std::uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}

/// This block's number in its cluster.
__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// A barrier for all threads of a cluster's blocks. Whole warps call it.
__device__ inline void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];"
               :
               : "l"(reinterpret_cast<std::uint64_t>(&map))
               : "memory");
}

/// Moves registers between the warps of a block: every warp of a group of four calls one of them
/// with the same number.
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

/// The descriptor of an operand in shared memory that begins at `address` (PTX ISA, "Asynchronous
/// Warpgroup Level Matrix Multiply-Accumulate Instructions", "Matrix Descriptor Format"; all in
/// units of 16 bytes):
///   bits  0-13  address
///   bits 16-29  leading dimension byte offset
///   bits 32-45  stride dimension byte offset
///   bits 49-51  base offset: 0, because patterns of 1,024 bytes begin at multiples of 1,024
///   bits 62-63  1: the swizzle of 128 bytes
/// Operands are boxes of rows of 128 bytes (tensor_map.h).
/// If the rows lie along k, each has 64 values of k for one row or column of the product. The
/// stride dimension byte offset leads from 8 rows to the next 8, 1,024 bytes; the other one is not
/// used and 1 by convention.
/// If the operand is transposed, a row has 64 rows or columns of the product for one k. The stride
/// dimension byte offset leads from 8 values of k to the next 8, again 1,024 bytes, and the leading
/// dimension byte offset from 64 rows or columns of the product to the next 64: to the next box.
template <bool kTransposed>
__device__ inline std::uint64_t operand_descriptor(std::uint32_t address, int box_bytes) {
  constexpr std::uint64_t kUnit = 16;
  constexpr std::uint64_t kPatternBytes = 1024;
  const std::uint64_t leading = kTransposed ? static_cast<std::uint64_t>(box_bytes) / kUnit : 1;
  return static_cast<std::uint64_t>(address & 0x3ffffu) / kUnit | leading << 16 |
         kPatternBytes / kUnit << 32 | std::uint64_t{1} << 62;
}

/// Stands between other uses of the sums' registers and multiply_async.
__device__ inline void fence_sums() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Closes a group of products: those that this warp started since the last call.
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most kPending of this warp's groups, the latest ones, are not complete.
template <int kPending>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
}
/// Keeps the compiler from reading the sums before a wait that stands before this call.
template <int kCount>
__device__ inline void use_sums(float (&sum)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sum[i]) : : "memory");
}

// The text of the instruction and its operands: the registers of the sums, both descriptors, the
// predicate that keeps the sums, and which operands do not lie along k.
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
#define VOLTA_WGMMA_128(type)                                                                     \
  asm volatile(                                                                                   \
      "{\n"                                                                                       \
      ".reg .pred keep;\n"                                                                        \
      "setp.ne.b32 keep, %66, 0;\n"                                                               \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {"                           \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                    \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "          \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "          \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"            \
      "}, %64, %65, keep, 1, 1, %67, %68;\n"                                                      \
      "}\n"                                                                                       \
      : VOLTA_SUMS_16(0), VOLTA_SUMS_16(16), VOLTA_SUMS_16(32), VOLTA_SUMS_16(48)                 \
      : "l"(a), "l"(b), "r"(static_cast<int>(keep)), "n"(kTransposeA ? 1 : 0),                    \
        "n"(kTransposeB ? 1 : 0)                                                                  \
      : "memory")
#define VOLTA_WGMMA_256(type)                                                                     \
  asm volatile(                                                                                   \
      "{\n"                                                                                       \
      ".reg .pred keep;\n"                                                                        \
      "setp.ne.b32 keep, %130, 0;\n"                                                              \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {"                           \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                    \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "          \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "          \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "          \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "          \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "          \
      "%96, %97, %98, %99, %100, %101, %102, %103, "                                              \
      "%104, %105, %106, %107, %108, %109, %110, %111, "                                          \
      "%112, %113, %114, %115, %116, %117, %118, %119, "                                          \
      "%120, %121, %122, %123, %124, %125, %126, %127"                                            \
      "}, %128, %129, keep, 1, 1, %131, %132;\n"                                                  \
      "}\n"                                                                                       \
      : VOLTA_SUMS_16(0), VOLTA_SUMS_16(16), VOLTA_SUMS_16(32), VOLTA_SUMS_16(48),                \
        VOLTA_SUMS_16(64), VOLTA_SUMS_16(80), VOLTA_SUMS_16(96), VOLTA_SUMS_16(112)               \
      : "l"(a), "l"(b), "r"(static_cast<int>(keep)), "n"(kTransposeA ? 1 : 0),                    \
        "n"(kTransposeB ? 1 : 0)                                                                  \
      : "memory")
// clang-format on

/// sum[64, n] = a[64, 16] b[16, n] + (keep ? sum : 0) for n = 2 kSums = 64, 128 or 256, with both
/// operands in shared memory. Starts the product; see wait_for_products. With lane l of warp w of
/// the group, g = l / 4 and t = l % 4, sum[4 j + 2 h + i] is row 16 w + g + 8 h, column 8 j + 2 t +
/// i.
template <typename T, bool kTransposeA, bool kTransposeB, int kSums>
__device__ inline void multiply_async(float (&sum)[kSums], std::uint64_t a, std::uint64_t b,
                                      bool keep) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
  static_assert(kSums == 32 || kSums == 64 || kSums == 128);
  constexpr bool kIsBf16 = std::is_same_v<T, bf16>;
  if constexpr (kSums == 32) {
    if constexpr (kIsBf16) {
      VOLTA_WGMMA_64("bf16");
    } else {
      VOLTA_WGMMA_64("f16");
    }
  } else if constexpr (kSums == 64) {
    if constexpr (kIsBf16) {
      VOLTA_WGMMA_128("bf16");
    } else {
      VOLTA_WGMMA_128("f16");
    }
  } else {
    if constexpr (kIsBf16) {
      VOLTA_WGMMA_256("bf16");
    } else {
      VOLTA_WGMMA_256("f16");
    }
  }
}

#undef VOLTA_WGMMA_256
#undef VOLTA_WGMMA_128
#undef VOLTA_WGMMA_64
#undef VOLTA_SUMS_16
#undef VOLTA_SUMS_4

}  // namespace volta::cuda::hopper
#endif  // VOLTA_HOPPER
