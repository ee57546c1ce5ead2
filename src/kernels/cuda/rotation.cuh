// The rotation of a pair of elements, for Rope and for what is fused with it.
#pragma once

#include <cuda_runtime.h>

namespace volta::cuda {

/// Rotates (a, b) by the angle with this cosine and sine.
__device__ inline void turn(float cosine, float sine, float& a, float& b) {
  const float old = a;
  a = fmaf(-b, sine, __fmul_rn(a, cosine));
  b = fmaf(b, cosine, __fmul_rn(old, sine));
}

}  // namespace volta::cuda
