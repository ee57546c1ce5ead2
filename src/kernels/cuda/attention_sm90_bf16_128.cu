// Attention on Hopper in bf16 with a head_dim of 128; see attention_sm90.cuh.
#include "kernels/cuda/attention_sm90.cuh"

namespace volta::cuda::attention {

cudaError_t forward_sm90_bf16_128(const Forward& call, unsigned* taken,
                                  const Context& context) noexcept {
  return sm90::forward<bf16, 128>(call, taken, context);
}

}  // namespace volta::cuda::attention
