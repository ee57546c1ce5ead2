// Expand: y[outer, length, inner] = scale * x[outer, inner]. Bound by the bytes of y.
#include <cstdint>

#include "kernels/cuda/elementwise.cuh"

namespace volta::cuda {
namespace {

// With `whole_groups`, x is 16-byte aligned, and groups of kVector<T> elements do not cross the end
// of the inner axes.
template <typename T>
__global__ void __launch_bounds__(kElementwiseThreads)
    expand_kernel(const T* x, T* y, std::int64_t n, std::int64_t length, std::int64_t inner,
                  float scale, bool whole_groups, bool vectors) {
  constexpr int kCount = kVector<T>;
  const std::int64_t first =
      (std::int64_t{blockIdx.x} * kElementwiseThreads + threadIdx.x) * kCount;
  if (first >= n) return;
  const std::int64_t row = first / inner;
  std::int64_t outer = row / length;
  std::int64_t step = row - outer * length;
  std::int64_t column = first - row * inner;
  float values[kCount];
  // SAFETY: groups begin before n, and elements from n on are not read.
  if (whole_groups) {
    load_elements(x, outer * inner + column, (outer + 1) * inner, true, values);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = first + i < n ? to_f32(x[outer * inner + column]) : 0.0f;
      if (++column < inner) continue;
      column = 0;
      if (++step < length) continue;
      step = 0;
      ++outer;
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = __fmul_rn(scale, values[i]);
  store_elements(values, y, first, n, vectors);
}

}  // namespace

std::int64_t workspace_bytes(const Expand&, const ArgShapes&, const Context&) { return 0; }
bool supports(const Expand&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const Expand& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const View& y = args.outputs[0];
  const int end = op.begin + op.shape.rank() - x.shape.rank();
  const std::int64_t length = op.shape.product(op.begin, end);
  const std::int64_t inner = op.shape.product(end, op.shape.rank());
  const std::int64_t n = op.shape.elements();
  if (n == 0) return cudaSuccess;
  return with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const bool whole_groups = inner % kVector<T> == 0 && is_aligned(x.data, 16);
    const unsigned blocks = blocks_for(n, std::int64_t{kElementwiseThreads} * kVector<T>);
    expand_kernel<T><<<blocks, kElementwiseThreads, 0, context.stream>>>(
        x.as<const T>(), y.as<T>(), n, length, inner, op.scale, whole_groups,
        is_aligned(y.data, 16));
    return launch_error();
  });
}

}  // namespace volta::cuda
