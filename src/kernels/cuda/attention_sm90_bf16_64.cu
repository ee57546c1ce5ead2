// Attention on Hopper in bf16 with a head_dim of 64; see attention_sm90.cuh.
#include "kernels/cuda/attention_sm90.cuh"

namespace volta::cuda::attention {

cudaError_t forward_sm90_bf16_64(const Forward& call, unsigned* taken,
                                 const Context& context) noexcept {
  return sm90::forward<bf16, 64>(call, taken, context);
}

}  // namespace volta::cuda::attention
