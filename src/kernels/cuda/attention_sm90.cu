// Which calls of Attention the kernels for Hopper take; see attention_sm90.cuh.
#include "kernels/cuda/attention_sm90.h"

namespace volta::cuda::attention {

namespace {

// The kernels have code for compute capability 9.x only, whatever architecture is asked for.
bool on_hopper() {
  int device = 0, major = 0;
  constexpr int kHopper = 9;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major == kHopper;
}

}  // namespace

bool forward_sm90_applies(DType dtype, std::int64_t head_dim, const Context& context) {
  constexpr int kArchitecture = 90;
  return context.architecture == kArchitecture && has_tensor_core_kernel(dtype, head_dim) &&
         on_hopper();
}

cudaError_t forward_sm90(const Forward& call, unsigned* taken, const Context& context) noexcept {
  if (call.dtype == DType::kBF16) {
    return call.y.dim == 64 ? forward_sm90_bf16_64(call, taken, context)
                            : forward_sm90_bf16_128(call, taken, context);
  }
  return call.y.dim == 64 ? forward_sm90_f16_64(call, taken, context)
                          : forward_sm90_f16_128(call, taken, context);
}

}  // namespace volta::cuda::attention
