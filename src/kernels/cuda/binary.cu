// Binary: z = x (kind) y, with y repeated along x's leading axes. z may be the memory of x. Bound
// by bytes.
#include <cstdint>

#include "kernels/cuda/elementwise.cuh"

namespace volta::cuda {
namespace {

__device__ inline float apply(BinaryKind kind, float x, float y) {
  switch (kind) {
    case BinaryKind::kAdd:
      return __fadd_rn(x, y);
    case BinaryKind::kSub:
      return __fsub_rn(x, y);
    case BinaryKind::kMul:
      return __fmul_rn(x, y);
    case BinaryKind::kDiv:
      break;
  }
  return __fdiv_rn(x, y);
}

// x and y of the same shape.
struct SameShape {
  BinaryKind kind;

  template <int kCount>
  __device__ void operator()(std::int64_t, const float (&x)[2][kCount],
                             float (&z)[1][kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) z[0][i] = apply(kind, x[0][i], x[1][i]);
  }
};

// Element i of y goes with elements i, i + period, ... of x.
template <typename T>
struct Repeated {
  BinaryKind kind;
  const T* y;
  std::int64_t period;
  bool vectors;  // y is 16-byte aligned, and its groups of kVector<T> elements are whole.

  template <int kCount>
  __device__ void operator()(std::int64_t first, const float (&x)[1][kCount],
                             float (&z)[1][kCount]) const {
    float repeated[kCount];
    if (period == 1) {
      const float number = to_f32(y[0]);
#pragma unroll
      for (int i = 0; i < kCount; ++i) repeated[i] = number;
    } else {
      std::int64_t at = first % period;
      if (vectors) {
        load_elements(y, at, period, true, repeated);
      } else {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          repeated[i] = to_f32(y[at]);
          if (++at == period) at = 0;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) z[0][i] = apply(kind, x[0][i], repeated[i]);
  }
};

}  // namespace

std::int64_t workspace_bytes(const Binary&, const ArgShapes&, const Context&) { return 0; }
bool supports(const Binary&, std::span<const TensorSpec>) { return true; }

cudaError_t run(const Binary& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const View& y = args.inputs[1];
  void* z = args.outputs[0].data;
  const std::int64_t elements = x.shape.elements();
  const std::int64_t period = y.shape.elements();
  if (elements == 0) return cudaSuccess;
  if (period == elements) {
    const Elementwise<2, 1> at = {{x.data, y.data}, {z}, elements};
    return launch_elementwise(x.dtype, at, SameShape{op.kind}, context);
  }
  return with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const bool vectors = is_aligned(y.data, 16) && period % kVector<T> == 0;
    const Elementwise<1, 1> at = {{x.data}, {z}, elements};
    return launch_elementwise<T>(at, Repeated<T>{op.kind, y.as<const T>(), period, vectors},
                                 context);
  });
}

}  // namespace volta::cuda
