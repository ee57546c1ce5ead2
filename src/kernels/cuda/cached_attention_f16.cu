// CachedAttention in f16 on tensor cores; see cached_attention_mma.cuh.
#include "kernels/cuda/cached_attention_mma.cuh"

namespace volta::cuda::attention {

cudaError_t cached_mma_f16(const CachedCall& call, float* partials,
                           const Context& context) noexcept {
  return mma::cached<f16>(call, partials, context);
}

}  // namespace volta::cuda::attention
