// What all CUDA kernels share: element types, reductions in a fixed order, sizes of grids, and the
// report of a bad index. Float results are computed in f32 and rounded once where they are stored.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cuda/cuda.h"

namespace volta::cuda {

using bf16 = __nv_bfloat16;
using f16 = __half;

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline float to_f32(float x) { return x; }
__device__ inline float to_f32(bf16 x) { return __bfloat162float(x); }
__device__ inline float to_f32(f16 x) { return __half2float(x); }

/// Rounds to the nearest even value of T.
template <typename T>
__device__ T from_f32(float x);
template <>
__device__ inline float from_f32<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 from_f32<bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline f16 from_f32<f16>(float x) {
  return __float2half_rn(x);
}

/// Carries a type to a generic lambda.
template <typename T>
struct Type {
  using type = T;
};

/// Calls body(Type<T>()) with the C++ type of a float type, and returns its result.
template <typename Body>
cudaError_t with_float(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(Type<float>());
    case DType::kBF16:
      return body(Type<bf16>());
    case DType::kF16:
      return body(Type<f16>());
    default:
      return cudaErrorInvalidValue;
  }
}

/// N elements of T that are loaded and stored at once. N * sizeof(T) is 4, 8 or 16.
template <typename T, int N>
struct alignas(N * sizeof(T)) Vector {
  T at[N];
};
/// The elements of T that fit into 16 bytes.
template <typename T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));

/// Whether an address is a multiple of `bytes`, a power of two.
inline bool is_aligned(const void* address, std::size_t bytes) {
  // SAFETY: only the number of the address is looked at; nothing is read through it.
  return (reinterpret_cast<std::uintptr_t>(address) & (bytes - 1)) == 0;
}

/// Blocks for `work` items at `per_block` each, at most `limit`: kernels then go over the rest in
/// strides of the grid. At least 1, because a launch without blocks is an error.
inline unsigned blocks_for(std::int64_t work, std::int64_t per_block,
                           std::int64_t limit = 0x7fffffff) {
  return static_cast<unsigned>(
      std::clamp<std::int64_t>(ceil_div(work, per_block), 1, std::max<std::int64_t>(limit, 1)));
}

/// The sum of a warp's values, the same in all lanes. The order depends on nothing but the lanes.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}
/// The largest of a warp's values, the same in all lanes. A NaN is ignored, as fmaxf does.
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  }
  return x;
}

/// The sum of the values of a block of kThreads threads, the same in all of them, in a fixed order.
/// `shared` has kThreads / 32 floats. All threads must call it; it may be called again at once.
template <int kThreads>
__device__ inline float block_sum(float x, float* shared) {
  static_assert(kThreads % kWarp == 0 && kThreads <= 1024);
  x = warp_sum(x);
  if constexpr (kThreads > kWarp) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    if (threadIdx.x % kWarp == 0) shared[warp] = x;
    __syncthreads();
    x = shared[0];
#pragma unroll
    for (int i = 1; i < kThreads / kWarp; ++i) x += shared[i];
    __syncthreads();
  }
  return x;
}
/// The largest of the values of a block; see block_sum and warp_max.
template <int kThreads>
__device__ inline float block_max(float x, float* shared) {
  static_assert(kThreads % kWarp == 0 && kThreads <= 1024);
  x = warp_max(x);
  if constexpr (kThreads > kWarp) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    if (threadIdx.x % kWarp == 0) shared[warp] = x;
    __syncthreads();
    x = shared[0];
#pragma unroll
    for (int i = 1; i < kThreads / kWarp; ++i) x = fmaxf(x, shared[i]);
    __syncthreads();
  }
  return x;
}

/// Where a kernel reports an index out of range; made from the context by the launcher.
struct Fault {
  unsigned long long* word = nullptr;
  unsigned long long call = 0;

  Fault() = default;
  explicit Fault(const Context& context) : word(context.fault), call(context.call) {}

  __device__ void report(std::int64_t element) const {
    atomicMin(word, call << kFaultElementBits | static_cast<unsigned long long>(element));
  }
};

/// Lets a kernel have so many bytes of dynamic shared memory; more than 48 KB must be asked for.
template <typename Kernel>
cudaError_t allow_shared(Kernel* kernel, std::int64_t bytes) {
  if (bytes <= 48 * 1024) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

/// The error of the last launch, which is cleared.
inline cudaError_t launch_error() { return cudaGetLastError(); }

}  // namespace volta::cuda
