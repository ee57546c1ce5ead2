// AttentionGrad in f16 on tensor cores; see attention_grad_mma.cuh.
#include "kernels/cuda/attention_grad_mma.cuh"

namespace volta::cuda::attention::grad {

cudaError_t launch_mma_f16(const Work& work, const Context& context) {
  return launch_mma<f16>(work, context);
}

}  // namespace volta::cuda::attention::grad
