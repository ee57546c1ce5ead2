// Products on Hopper of bf16, tiles of 128 x 256; see gemm_sm90.cuh.
#include "kernels/cuda/gemm_sm90.cuh"

namespace volta::cuda {

cudaError_t gemm_sm90_bf16_256(const Gemm& gemm, const Sm90Maps& maps, const Sm90Work& work,
                               unsigned blocks, const Context& context) {
  return choose_sm90<bf16, 256>(gemm, maps, work, blocks, context);
}

}  // namespace volta::cuda
