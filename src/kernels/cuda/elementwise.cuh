// Kernels that compute each element of their results from the same element of their operands. All
// of them are bound by bytes: a thread moves 16 bytes of every operand at once. Where an operand is
// not aligned, or at the end of a tensor, it moves the same elements one by one and computes them
// with the same code, so that addresses and sizes do not change bits.
#pragma once

#include <cstdint>

#include "kernels/cuda/common.cuh"

namespace volta::cuda {

inline constexpr int kElementwiseThreads = 256;

/// The elements of x from `first` on as f32; x has n elements. With `vectors`, x is 16-byte aligned
/// and `first` a multiple of kCount. Elements after the end are 0.
template <int kCount, typename T>
__device__ inline void load_elements(const T* x, std::int64_t first, std::int64_t n, bool vectors,
                                     float (&to)[kCount]) {
  if (vectors && first + kCount <= n) {
    const auto vector = *reinterpret_cast<const Vector<T, kCount>*>(x + first);
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = to_f32(vector.at[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = first + i < n ? to_f32(x[first + i]) : 0.0f;
  }
}

/// Rounds and stores elements, those up to n; see load_elements.
template <int kCount, typename T>
__device__ inline void store_elements(const float (&from)[kCount], T* y, std::int64_t first,
                                      std::int64_t n, bool vectors) {
  if (vectors && first + kCount <= n) {
    Vector<T, kCount> vector;
#pragma unroll
    for (int i = 0; i < kCount; ++i) vector.at[i] = from_f32<T>(from[i]);
    *reinterpret_cast<Vector<T, kCount>*>(y + first) = vector;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (first + i < n) y[first + i] = from_f32<T>(from[i]);
    }
  }
}

/// The operands of an elementwise op, each of n elements of one type. A result may have the address
/// of an operand, because a thread reads all of its elements before it writes any.
template <int kInputs, int kOutputs>
struct Elementwise {
  const void* in[kInputs] = {};
  void* out[kOutputs] = {};
  std::int64_t n = 0;
  bool vectors = false;  ///< All of them are 16-byte aligned.
};

/// Calls body(first, x, y) for each group of kVector<T> elements: it computes y[output][i] from
/// x[input][i], which is element first + i.
template <typename T, int kInputs, int kOutputs, typename Body>
__global__ void __launch_bounds__(kElementwiseThreads)
    elementwise_kernel(const Elementwise<kInputs, kOutputs> at, const Body body) {
  constexpr int kCount = kVector<T>;
  const std::int64_t first =
      (std::int64_t{blockIdx.x} * kElementwiseThreads + threadIdx.x) * kCount;
  if (first >= at.n) return;
  float x[kInputs][kCount];
  float y[kOutputs][kCount];
  // SAFETY: the launcher's views hold n elements of type T; loads and stores stay below n.
#pragma unroll
  for (int i = 0; i < kInputs; ++i) {
    load_elements(static_cast<const T*>(at.in[i]), first, at.n, at.vectors, x[i]);
  }
  body(first, x, y);
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) {
    store_elements(y[i], static_cast<T*>(at.out[i]), first, at.n, at.vectors);
  }
}

/// Launches elementwise_kernel for operands of type T.
template <typename T, int kInputs, int kOutputs, typename Body>
cudaError_t launch_elementwise(Elementwise<kInputs, kOutputs> at, const Body& body,
                               const Context& context) {
  if (at.n == 0) return cudaSuccess;
  at.vectors = true;
  for (const void* address : at.in) at.vectors = at.vectors && is_aligned(address, 16);
  for (const void* address : at.out) at.vectors = at.vectors && is_aligned(address, 16);
  const unsigned blocks = blocks_for(at.n, std::int64_t{kElementwiseThreads} * kVector<T>);
  elementwise_kernel<T, kInputs, kOutputs>
      <<<blocks, kElementwiseThreads, 0, context.stream>>>(at, body);
  return launch_error();
}

/// The same for a type that is known at run time.
template <int kInputs, int kOutputs, typename Body>
cudaError_t launch_elementwise(DType dtype, const Elementwise<kInputs, kOutputs>& at,
                               const Body& body, const Context& context) {
  return with_float(dtype, [&](auto type) {
    return launch_elementwise<typename decltype(type)::type>(at, body, context);
  });
}

}  // namespace volta::cuda
