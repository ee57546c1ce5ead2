// Unary and UnaryGrad: one element in, one out. Bound by bytes.
#include <cstdint>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/elementwise.cuh"

namespace volta::cuda {
namespace {

struct UnaryBody {
  UnaryKind kind;
  float alpha;

  template <int kCount>
  __device__ void operator()(std::int64_t, const float (&x)[1][kCount],
                             float (&y)[1][kCount]) const {
    with_unary_kind(kind, [&](auto constant) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        y[0][i] = apply_unary(decltype(constant)::value, alpha, x[0][i]);
      }
    });
  }
};

struct UnaryGradBody {
  UnaryKind kind;
  float alpha;

  template <int kCount>
  __device__ void operator()(std::int64_t, const float (&x)[2][kCount],
                             float (&dx)[1][kCount]) const {
    with_unary_kind(kind, [&](auto constant) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        dx[0][i] = __fmul_rn(x[1][i], unary_slope(decltype(constant)::value, alpha, x[0][i]));
      }
    });
  }
};

}  // namespace

std::int64_t workspace_bytes(const Unary&, const ArgShapes&, const Context&) { return 0; }
bool supports(const Unary&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const Unary& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const Elementwise<1, 1> at = {{x.data}, {args.outputs[0].data}, x.shape.elements()};
  return launch_elementwise(x.dtype, at, UnaryBody{op.kind, op.alpha}, context);
}

std::int64_t workspace_bytes(const UnaryGrad&, const ArgShapes&, const Context&) { return 0; }
bool supports(const UnaryGrad&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const UnaryGrad& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const Elementwise<2, 1> at = {
      {x.data, args.inputs[1].data}, {args.outputs[0].data}, x.shape.elements()};
  return launch_elementwise(x.dtype, at, UnaryGradBody{op.kind, op.alpha}, context);
}

}  // namespace volta::cuda
