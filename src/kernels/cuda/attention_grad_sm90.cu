// Which calls of AttentionGrad the kernels for Hopper take; see attention_grad_sm90.cuh.
#include "kernels/cuda/attention_grad.cuh"
#include "kernels/cuda/tensor_map.h"

namespace volta::cuda::attention::grad {

namespace {

constexpr int kHopper = 90;

// The kernels have code for compute capability 9.0 only, whatever architecture is asked for.
bool on_hopper() {
  int device = 0, major = 0, minor = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         major * 10 + minor == kHopper;
}

}  // namespace

MappedMatrix mapped_rows(const HeadRows& rows, DType dtype, std::int64_t batch) {
  return {.data = rows.data,
          .type = dtype,
          .columns = rows.stride,
          .rows = rows.time,
          .layers = batch,
          .stride = rows.stride,
          .layer_stride = rows.time * rows.stride};
}

bool sm90_applies(const Work& work, const Context& context) {
  const Backward& call = work.call;
  if (context.architecture != kHopper || !work.at_once) return false;
  if (call.softcap > 0.0f || call.dropout.rng != nullptr) return false;
  for (const HeadRows& rows : {call.in.q, call.in.k, call.in.v, call.dy}) {
    if (!can_map(mapped_rows(rows, call.dtype, call.batch))) return false;
  }
  return on_hopper();
}

}  // namespace volta::cuda::attention::grad
