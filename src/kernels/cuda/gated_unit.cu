// GatedUnit and GatedUnitGrad: activation(gate) * up, element by element. Bound by bytes.
#include <cstdint>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/elementwise.cuh"

namespace volta::cuda {
namespace {

struct GatedUnitBody {
  Activation activation;

  // x: gate, up.
  template <int kCount>
  __device__ void operator()(std::int64_t, const float (&x)[2][kCount],
                             float (&y)[1][kCount]) const {
    with_activation(activation, [&](auto constant) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        y[0][i] = __fmul_rn(apply_unary(decltype(constant)::value, 1.0f, x[0][i]), x[1][i]);
      }
    });
  }
};

struct GatedUnitGradBody {
  Activation activation;

  // x: gate, up, dy. y: dgate, dup.
  template <int kCount>
  __device__ void operator()(std::int64_t, const float (&x)[3][kCount],
                             float (&y)[2][kCount]) const {
    with_activation(activation, [&](auto constant) {
      constexpr Activation kKind = decltype(constant)::value;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float gate = x[0][i], up = x[1][i], dy = x[2][i];
        y[0][i] = __fmul_rn(__fmul_rn(dy, up), unary_slope(kKind, 1.0f, gate));
        y[1][i] = __fmul_rn(dy, apply_unary(kKind, 1.0f, gate));
      }
    });
  }
};

}  // namespace

std::int64_t workspace_bytes(const GatedUnit&, const ArgShapes&, const Context&) { return 0; }
bool supports(const GatedUnit&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const GatedUnit& op, const Args& args, const Context& context) noexcept {
  const View& gate = args.inputs[0];
  const Elementwise<2, 1> at = {
      {gate.data, args.inputs[1].data}, {args.outputs[0].data}, gate.shape.elements()};
  return launch_elementwise(gate.dtype, at, GatedUnitBody{op.activation}, context);
}

std::int64_t workspace_bytes(const GatedUnitGrad&, const ArgShapes&, const Context&) { return 0; }
bool supports(const GatedUnitGrad&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const GatedUnitGrad& op, const Args& args, const Context& context) noexcept {
  const View& gate = args.inputs[0];
  const Elementwise<3, 2> at = {{gate.data, args.inputs[1].data, args.inputs[2].data},
                                {args.outputs[0].data, args.outputs[1].data},
                                gate.shape.elements()};
  return launch_elementwise(gate.dtype, at, GatedUnitGradBody{op.activation}, context);
}

}  // namespace volta::cuda
