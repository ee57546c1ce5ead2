// Accumulate and Fill: ops that write their first input in place and have no output. Bound by
// bytes.
#include <cstdint>

#include "kernels/cuda/elementwise.cuh"

namespace volta::cuda {
namespace {

struct AccumulateBody {
  float scale;

  // x: target, x.
  template <int kCount>
  __device__ void operator()(std::int64_t, const float (&x)[2][kCount],
                             float (&target)[1][kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) target[0][i] = fmaf(scale, x[1][i], x[0][i]);
  }
};

__global__ void __launch_bounds__(kElementwiseThreads)
    fill_kernel(float* target, std::int64_t n, float value, bool vectors) {
  constexpr int kCount = kVector<float>;
  const std::int64_t first =
      (std::int64_t{blockIdx.x} * kElementwiseThreads + threadIdx.x) * kCount;
  const float values[kCount] = {value, value, value, value};
  store_elements(values, target, first, n, vectors);
}

}  // namespace

std::int64_t workspace_bytes(const Accumulate&, const ArgShapes&, const Context&) { return 0; }
bool supports(const Accumulate&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const Accumulate& op, const Args& args, const Context& context) noexcept {
  const View& target = args.inputs[0];
  const Elementwise<2, 1> at = {
      {target.data, args.inputs[1].data}, {target.data}, target.shape.elements()};
  return launch_elementwise<float>(at, AccumulateBody{op.scale}, context);
}

std::int64_t workspace_bytes(const Fill&, const ArgShapes&, const Context&) { return 0; }
bool supports(const Fill&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const Fill& op, const Args& args, const Context& context) noexcept {
  const View& target = args.inputs[0];
  const std::int64_t n = target.shape.elements();
  if (n == 0) return cudaSuccess;
  const unsigned blocks = blocks_for(n, std::int64_t{kElementwiseThreads} * kVector<float>);
  fill_kernel<<<blocks, kElementwiseThreads, 0, context.stream>>>(target.as<float>(), n, op.value,
                                                                  is_aligned(target.data, 16));
  return launch_error();
}

}  // namespace volta::cuda
