// Cast: between floats, rounding to nearest even, and between integers and f32. An f32 becomes an
// integer by dropping its fraction and clamping it to the integer's range; NaN becomes 0. Bound by
// bytes.
#include <concepts>
#include <cstdint>
#include <limits>

#include "kernels/cuda/common.cuh"

namespace volta::cuda {
namespace {

constexpr int kThreads = 256;

template <std::integral To>
__device__ To clamped(float value) {
  // The limits as floats: the upper one may round up to 2^31 or 2^63, which is already too large.
  constexpr auto kLow = static_cast<float>(std::numeric_limits<To>::min());
  constexpr auto kHigh = static_cast<float>(std::numeric_limits<To>::max());
  if (value >= kHigh) return std::numeric_limits<To>::max();
  if (value <= kLow) return std::numeric_limits<To>::min();
  return value == value ? static_cast<To>(value) : To{0};
}

template <typename From, typename To>
__device__ To convert(From value) {
  if constexpr (std::integral<From>) {
    return static_cast<To>(value);  // To is float; the conversion rounds to nearest even.
  } else if constexpr (std::integral<To>) {
    return clamped<To>(to_f32(value));
  } else {
    return from_f32<To>(to_f32(value));  // Floats of 16 bits are exact in f32: one rounding.
  }
}

// A thread converts kCount elements: 16 bytes of the wider type.
template <typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(const From* x, To* y, std::int64_t n, bool vectors) {
  constexpr int kCount =
      16 / static_cast<int>(sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  const std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount;
  // SAFETY: the views hold n elements of these types; with `vectors` both are 16-byte aligned, and
  // `first` is a multiple of kCount.
  if (vectors && first + kCount <= n) {
    const auto from = *reinterpret_cast<const Vector<From, kCount>*>(x + first);
    Vector<To, kCount> to;
#pragma unroll
    for (int i = 0; i < kCount; ++i) to.at[i] = convert<From, To>(from.at[i]);
    *reinterpret_cast<Vector<To, kCount>*>(y + first) = to;
  } else {
    for (std::int64_t i = first; i < first + kCount && i < n; ++i) y[i] = convert<From, To>(x[i]);
  }
}

template <typename From, typename To>
cudaError_t launch(const View& x, const View& y, const Context& context) {
  const std::int64_t n = x.shape.elements();
  const bool vectors = is_aligned(x.data, 16) && is_aligned(y.data, 16);
  const std::int64_t wider = sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To);
  const unsigned blocks = blocks_for(n, kThreads * 16 / wider);
  cast_kernel<From, To>
      <<<blocks, kThreads, 0, context.stream>>>(x.as<const From>(), y.as<To>(), n, vectors);
  return launch_error();
}

template <typename Body>
cudaError_t with_integer(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kI8:
      return body(Type<std::int8_t>());
    case DType::kU8:
      return body(Type<std::uint8_t>());
    case DType::kI32:
      return body(Type<std::int32_t>());
    case DType::kI64:
      return body(Type<std::int64_t>());
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

std::int64_t workspace_bytes(const Cast&, const ArgShapes&, const Context&) { return 0; }
bool supports(const Cast&, std::span<const TensorSpec>) { return true; }

// infer allows casts from an integer to f32 and from f32 to an integer, but no others with
// integers.
cudaError_t run(const Cast&, const Args& args, const Context& context) noexcept {
  const View& x = args.inputs[0];
  const View& y = args.outputs[0];
  if (x.shape.elements() == 0) return cudaSuccess;
  if (!is_float(x.dtype)) {
    return with_integer(x.dtype, [&](auto from) {
      return launch<typename decltype(from)::type, float>(x, y, context);
    });
  }
  if (!is_float(y.dtype)) {
    return with_integer(y.dtype, [&](auto to) {
      return launch<float, typename decltype(to)::type>(x, y, context);
    });
  }
  return with_float(x.dtype, [&](auto from) {
    return with_float(y.dtype, [&](auto to) {
      return launch<typename decltype(from)::type, typename decltype(to)::type>(x, y, context);
    });
  });
}

}  // namespace volta::cuda
