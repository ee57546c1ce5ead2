// Tensor-core products of f16, a along k; see gemm_mma.cuh.
#include "kernels/cuda/gemm_mma.cuh"

namespace volta::cuda {

cudaError_t gemm_mma_f16(const Gemm& gemm, const Context& context) {
  return gemm.b.along_k ? choose_mma<f16, true, true>(gemm, context)
                        : choose_mma<f16, true, false>(gemm, context);
}

}  // namespace volta::cuda
