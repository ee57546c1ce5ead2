// Products on Hopper of f16, tiles of 128 x 128; see gemm_sm90.cuh.
#include "kernels/cuda/gemm_sm90.cuh"

namespace volta::cuda {

cudaError_t gemm_sm90_f16_128(const Gemm& gemm, const Context& context) {
  return choose_sm90<f16, 128>(gemm, context);
}

}  // namespace volta::cuda
