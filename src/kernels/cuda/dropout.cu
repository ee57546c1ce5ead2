// Dropout: the mask is computed again from (seed, stream, step, element) whenever it is needed. It
// is the same on every device. The output may be the memory of x. Bound by bytes in f32; the random
// numbers take about as long as the bytes of 16-bit elements.
#include <cstdint>

#include "base/rng.h"
#include "kernels/cuda/elementwise.cuh"

namespace volta::cuda {
namespace {

struct DropoutBody {
  const std::int64_t* rng;  // {seed, step}
  std::uint32_t stream;
  float p;
  float kept_scale;  // 1 / (1 - p)

  // One block of random numbers is for four elements, and `first` is a multiple of four.
  template <int kCount>
  __device__ void operator()(std::int64_t first, const float (&x)[1][kCount],
                             float (&y)[1][kCount]) const {
    static_assert(kCount % 4 == 0);
    const auto seed = static_cast<std::uint64_t>(rng[0]);
    const auto step = static_cast<std::uint32_t>(rng[1]);
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const Random4 bits =
          random_bits(seed, stream, step, static_cast<std::uint64_t>(first + i) / 4);
      const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float factor = uniform_float(words[j]) >= p ? kept_scale : 0.0f;
        y[0][i + j] = __fmul_rn(x[0][i + j], factor);
      }
    }
  }
};

}  // namespace

std::int64_t workspace_bytes(const Dropout&, const ArgShapes&, const Context&) { return 0; }
bool supports(const Dropout&, std::span<const TensorSpec>) { return true; }

// With p = 0 every element is kept and multiplied by 1.
cudaError_t run(const Dropout& op, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const Elementwise<1, 1> at = {{x.data}, {args.outputs[0].data}, x.shape.elements()};
  const DropoutBody body = {args.inputs[1].as<const std::int64_t>(), op.stream, op.p,
                            1.0f / (1.0f - op.p)};
  return launch_elementwise(x.dtype, at, body, context);
}

}  // namespace volta::cuda
