// Attention on Hopper in f16 with a head_dim of 64; see attention_sm90.cuh.
#include "kernels/cuda/attention_sm90.cuh"

namespace volta::cuda::attention {

cudaError_t forward_sm90_f16_64(const Forward& call, unsigned* taken,
                                const Context& context) noexcept {
  return sm90::forward<f16, 64>(call, taken, context);
}

}  // namespace volta::cuda::attention
