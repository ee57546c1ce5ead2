// CachedAttention in bf16 on tensor cores; see cached_attention_mma.cuh.
#include "kernels/cuda/cached_attention_mma.cuh"

namespace volta::cuda::attention {

cudaError_t cached_mma_bf16(const CachedCall& call, float* partials,
                            const Context& context) noexcept {
  return mma::cached<bf16>(call, partials, context);
}

}  // namespace volta::cuda::attention
