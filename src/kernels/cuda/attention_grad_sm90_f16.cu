// AttentionGrad in f16 on Hopper; see attention_grad_sm90.cuh.
#include "kernels/cuda/attention_grad_sm90.cuh"

namespace volta::cuda::attention::grad {

cudaError_t launch_sm90_f16(const Work& work, const Context& context) {
  return launch_sm90<f16>(work, context);
}

}  // namespace volta::cuda::attention::grad
