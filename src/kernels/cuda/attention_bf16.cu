// Attention in bf16 on tensor cores; see attention_mma_forward.cuh.
#include "kernels/cuda/attention_mma_forward.cuh"

namespace volta::cuda::attention {

cudaError_t forward_bf16(const Forward& call, const Context& context) noexcept {
  return mma::forward<bf16>(call, context);
}

}  // namespace volta::cuda::attention
