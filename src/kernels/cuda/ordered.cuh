// The order of floats as integers, for Argmax and Sample: which of two elements of a row is the
// larger one, and the first of the largest.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/rows.cuh"

namespace volta::cuda {

/// Larger for larger x, equal for equal x (0 and -0 are equal), and largest for a NaN. Never 0.
__device__ inline std::uint32_t ordered_bits(float x) {
  if (x != x) return 0xffffffffu;
  const std::uint32_t bits = __float_as_uint(x + 0.0f);  // -0 + 0 is 0.
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
/// The x of ordered_bits(x).
__device__ inline float from_ordered_bits(std::uint32_t bits) {
  return __uint_as_float((bits & 0x80000000u) != 0 ? bits ^ 0x80000000u : ~bits);
}

/// The first of the largest elements that were added; a NaN counts as the largest.
struct Largest {
  std::uint32_t bits = 0;  ///< ordered_bits of the element; 0 while there is none.
  std::uint32_t index = 0;

  /// Elements must be added in the order of their indices.
  __device__ void add(float x, std::uint32_t its_index) {
    const std::uint32_t its_bits = ordered_bits(x);
    if (its_bits <= bits) return;
    bits = its_bits;
    index = its_index;
  }

  /// Adds the largest of elements whose indices are larger than those before.
  __device__ void add(const Largest& other) {
    if (other.bits <= bits) return;
    *this = other;
  }

  /// Makes it the largest of the whole team, in all threads. `shared` has kTeam / 32 elements.
  template <int kTeam>
  __device__ void join(unsigned long long* shared) {
    // Of equal elements the one with the smaller index has the larger word.
    unsigned long long word = static_cast<unsigned long long>(bits) << 32 | (0xffffffffu - index);
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      word = max(word, __shfl_xor_sync(kAllLanes, word, distance));
    }
    if constexpr (kTeam > kWarp) {
      if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = word;
      __syncthreads();
      for (int i = 0; i < kTeam / kWarp; ++i) word = max(word, shared[i]);
      __syncthreads();
    }
    bits = static_cast<std::uint32_t>(word >> 32);
    index = 0xffffffffu - static_cast<std::uint32_t>(word);
  }
};

}  // namespace volta::cuda
