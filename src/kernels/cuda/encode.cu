// Encode: rounds plain weights to integers in blocks, decodes blocks to f32, and copies. It runs
// once per weight, when a model is prepared. The integers are those of the CPU: sums go along K in
// order, one thread per block. int8 is limited by bytes. int4 is limited by arithmetic, because it
// tries six scales per block.
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/quant_format.cuh"

namespace volta::cuda {
namespace {

constexpr int kThreads = 256;

/// A weight b[k, n] in both forms.
struct Weight {
  Encoding encoding;
  std::int64_t k, n;
  std::int64_t blocks;  ///< Per column.
  int block, block_bytes;
};

Weight weight_of(const Encoding& encoding, const Shape& shape) {
  const std::int64_t k = encoding.k(shape);
  return {encoding,          k,
          encoding.n(shape), encoding.blocks(k),
          encoding.block,    static_cast<int>(encoding.block_bytes())};
}

__global__ void __launch_bounds__(kThreads)
    decode(Weight w, const std::uint8_t* x, float* y, std::int64_t elements) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t width = w.encoding.transposed ? w.k : w.n;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < elements; i += step) {
    const std::int64_t k = w.encoding.transposed ? i % width : i / width;
    const std::int64_t column = w.encoding.transposed ? i / width : i % width;
    const std::uint8_t* block = x + (column * w.blocks + k / w.block) * w.block_bytes;
    y[i] = decode_element(w.encoding.quant, block, static_cast<int>(k % w.block));
  }
}

// A warp rounds the same block of 32 columns, one column per thread. Step k of the warp's columns
// is at values[k * kStride]; an odd stride lets the warp write along K, too, without conflicts.
constexpr int kColumns = kWarp, kStride = kColumns + 1;

/// 1 / scale, or 0 if scale is 0.
__device__ float inverse_of(float scale) { return scale == 0.0f ? 0.0f : __fdiv_rn(1.0f, scale); }

__device__ float round_to(float x, float inverse, float low, float high) {
  return fminf(fmaxf(rintf(__fmul_rn(x, inverse)), low), high);
}

/// The best of a few scales by the sum of squared errors; the first one on ties, and if its error
/// is NaN (a scale beyond f16). The lowest of the 16 levels, -8, is at the largest magnitude or
/// near it.
__device__ __half int4_scale(const float* values, int steps, float top) {
  constexpr int kScales = 6;
  constexpr float kSteps[kScales] = {8.0f, 7.0f, 7.5f, 8.5f, 7.75f, 8.25f};
  __half half[kScales];
  float scale[kScales], inverse[kScales], error[kScales];
#pragma unroll
  for (int c = 0; c < kScales; ++c) {
    half[c] = __float2half_rn(__fdiv_rn(top, -kSteps[c]));
    scale[c] = __half2float(half[c]);
    inverse[c] = inverse_of(scale[c]);
    error[c] = 0.0f;
  }
  for (int k = 0; k < steps; ++k) {
    const float v = values[k * kStride];
#pragma unroll
    for (int c = 0; c < kScales; ++c) {
      const float q = round_to(v, inverse[c], -8.0f, 7.0f);
      const float off = __fsub_rn(__fmul_rn(q, scale[c]), v);
      error[c] = __fadd_rn(error[c], __fmul_rn(off, off));
    }
  }
  __half best = half[0];
  float least = error[0];
#pragma unroll
  for (int c = 1; c < kScales; ++c) {
    if (error[c] < least) {
      best = half[c];
      least = error[c];
    }
  }
  return best;
}

/// Rounds a column of a block to its stored form at `to`.
// SAFETY: blocks have an even number of bytes, and so begin at even addresses.
__device__ void round_block(const float* values, int steps, bool int4, std::uint8_t* to) {
  float low = 0.0f, high = 0.0f;
  bool finite = true;
  for (int k = 0; k < steps; ++k) {
    const float v = values[k * kStride];
    if (v < low) low = v;
    if (v > high) high = v;
    finite = finite && fabsf(v) <= 3.402823466e38f;
  }
  // The value of the largest magnitude, with its sign; on ties the positive one.
  const float top = -low > high ? low : high;
  // A column with a value that is not finite gets a NaN, because it must not look like a number.
  const __half half =
      int4 ? int4_scale(values, steps, top) : __float2half_rn(__fdiv_rn(fabsf(top), 127.0f));
  const float inverse = inverse_of(__half2float(half));
  auto* words = reinterpret_cast<std::uint16_t*>(to);
  words[0] = finite ? __half_as_ushort(half) : std::uint16_t{0x7E00};
  const float least = int4 ? -8.0f : -127.0f, most = int4 ? 7.0f : 127.0f;
  const auto integer = [&](int k) {
    return finite ? __float2int_rn(round_to(values[k * kStride], inverse, least, most)) : 1;
  };
  if (!int4) {
    for (int k = 0; k < steps; k += 2) {
      words[1 + k / 2] =
          static_cast<std::uint16_t>((integer(k) & 0xFF) | ((integer(k + 1) & 0xFF) << 8));
    }
    return;
  }
  // In each run of 32 elements, i and i + 16 share byte i.
  for (int i = 0; i < steps / 2; i += 2) {
    const int k = i / 16 * 32 + i % 16;
    const auto byte = [&](int at) { return (integer(at) + 8) | ((integer(at + 16) + 8) << 4); };
    words[1 + i / 2] = static_cast<std::uint16_t>(byte(k) | (byte(k + 1) << 8));
  }
}

/// Rounds block number blockIdx.x, and so on, of 32 columns; the columns' blocks are counted first.
template <typename T>
__global__ void __launch_bounds__(kWarp) round_columns(Weight w, const T* x, std::uint8_t* y) {
  extern __shared__ float values[];  // [block][kStride]
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t work = ceil_div(w.n, std::int64_t{kColumns}) * w.blocks;
  for (std::int64_t index = blockIdx.x; index < work; index += gridDim.x) {
    const std::int64_t block = index % w.blocks, first = index / w.blocks * kColumns;
    const std::int64_t begin = block * w.block;
    // The rest of the last block is zeros, and so are columns behind the last one.
    const auto load = [&](int k, int column) {
      const std::int64_t row = begin + k, at = first + column;
      if (row >= w.k || at >= w.n) return 0.0f;
      return to_f32(x[w.encoding.transposed ? at * w.k + row : row * w.n + at]);
    };
    if (w.encoding.transposed) {
      for (int column = 0; column < kColumns; ++column) {
        for (int k = lane; k < w.block; k += kWarp) values[k * kStride + column] = load(k, column);
      }
    } else {
      for (int k = 0; k < w.block; ++k) values[k * kStride + lane] = load(k, lane);
    }
    __syncwarp();
    if (first + lane < w.n) {
      round_block(values + lane, w.block, w.encoding.quant == Quant::kInt4,
                  y + ((first + lane) * w.blocks + block) * w.block_bytes);
    }
    __syncwarp();
  }
}

}  // namespace

std::int64_t workspace_bytes(const Encode& /*op*/, const ArgShapes& /*shapes*/,
                             const Context& /*context*/) {
  return 0;
}

// Panels are an arrangement for CPUs.
bool supports(const Encode& op, std::span<const TensorSpec> inputs) {
  return op.to.packing == Packing::kRows && inputs[0].encoding.packing == Packing::kRows;
}

cudaError_t run(const Encode& op, const Args& args, const Context& context) noexcept {
  const View &x = args.inputs[0], &y = args.outputs[0];
  const std::int64_t elements = x.shape.elements();
  if (elements == 0) return cudaSuccess;
  if (x.encoding.quantized() == op.to.quantized()) {  // Both plain, or the same integers.
    return cudaMemcpyAsync(y.data, x.data, static_cast<std::size_t>(x.bytes()),
                           cudaMemcpyDeviceToDevice, context.stream);
  }
  if (!op.to.quantized()) {
    const unsigned grid = blocks_for(elements, kThreads);
    decode<<<grid, kThreads, 0, context.stream>>>(
        weight_of(x.encoding, x.shape), x.as<const std::uint8_t>(), y.as<float>(), elements);
    return launch_error();
  }
  const Weight w = weight_of(op.to, x.shape);
  const unsigned grid = blocks_for(ceil_div(w.n, std::int64_t{kColumns}) * w.blocks, 1);
  const std::size_t shared = static_cast<std::size_t>(w.block) * kStride * sizeof(float);
  return with_float(x.dtype, [&](auto element) {
    using T = typename decltype(element)::type;
    round_columns<T>
        <<<grid, kWarp, shared, context.stream>>>(w, x.as<const T>(), y.as<std::uint8_t>());
    return launch_error();
  });
}

}  // namespace volta::cuda
