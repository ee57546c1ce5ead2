// Rounds rows of activations to int8 (quant_rows.cuh), exactly as the CPU does. A block along K, as
// long as the weight's or longer, has one scale: its largest magnitude / 127. A few channels of a
// trained model's activations are tens of times larger than the others, and such a scale would
// leave too few digits to the others. So the scale of a block covers at most eight times what its
// quietest group of 32 elements needs. If a group has larger values, they are cut off. What the cut
// and the rounding leave of that group is its rest, which is rounded again, with a scale of its
// own.
//
// A warp rounds a block of a row, so that a row's integers depend only on its elements and its
// length. Limited by bytes; small beside the product itself.
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/places.h"
#include "kernels/cuda/quant_format.cuh"
#include "kernels/cuda/quant_rows.cuh"

namespace volta::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kMostGroups = kMaxBlock / kGroup;

/// A block's scale covers at most this many times what its quietest group needs.
constexpr float kLoudest = 8.0f;
/// Below this, 127 / x is near infinity; such values count as zero.
constexpr float kTiny = 0x1p-100f;
constexpr unsigned kInfinityBits = 0x7F800000u;

__device__ float inverse_of(float limit) { return limit > kTiny ? __fdiv_rn(127.0f, limit) : 0.0f; }

__device__ unsigned magnitude_bits(float x) { return __float_as_uint(x) & 0x7FFFFFFFu; }

/// Rounds x * inverse to the nearest integer, at most 127 in magnitude.
__device__ int round_to_byte(float x, float inverse) {
  return __float2int_rn(fminf(fmaxf(__fmul_rn(x, inverse), -127.0f), 127.0f));
}

/// Of some warps, what the threads of one know of its block.
struct RowBlock {
  std::int64_t row, block;
  int groups;
  std::int64_t first_group;
};

/// Rounds the elements of a warp's block. Lane i has element i of every group. Numbers that are
/// not finite have the largest bits.
__device__ void round_block(const float (&x)[kMostGroups], const RowBlock& at,
                            const QuantRows& to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  unsigned tops[kMostGroups];
  unsigned loudest = 0, quietest = kInfinityBits;
#pragma unroll
  for (int i = 0; i < kMostGroups; ++i) {
    tops[i] = 0;
    if (i >= at.groups) continue;
    tops[i] = __reduce_max_sync(kAllLanes, magnitude_bits(x[i]));
    loudest = max(loudest, tops[i]);
    if (tops[i] > __float_as_uint(kTiny)) quietest = min(quietest, tops[i]);
  }
  const bool finite = loudest < kInfinityBits;
  const float limit =
      fminf(__uint_as_float(loudest), __fmul_rn(kLoudest, __uint_as_float(quietest)));
  const float scale = __fdiv_rn(limit, 127.0f);
  const float inverse = inverse_of(limit);
  // Within a group, thread t of four has elements 4 t to 4 t + 3 and 16 + 4 t to 16 + 4 t + 3.
  const int place = lane % 16 / 4 * 8 + lane / 16 * 4 + lane % 4;
  const std::int64_t q_at = at.row * to.stride + at.first_group * kGroup + place;
  unsigned rests = 0;
#pragma unroll
  for (int i = 0; i < kMostGroups; ++i) {
    if (i >= at.groups) continue;
    const std::int64_t factor = (at.first_group + i) * to.m + at.row;
    const int q = finite ? round_to_byte(x[i], inverse) : 0;
    to.q[q_at + i * kGroup] = static_cast<std::int8_t>(q);
    if (to.less != nullptr) {
      const int sum = __reduce_add_sync(kAllLanes, q);
      if (lane == 0) to.less[factor] = static_cast<float>(-sum);
    }
    if (!finite || !(__uint_as_float(tops[i]) > limit)) continue;
    rests |= 1u << i;
    const float left = fmaf(-static_cast<float>(q), scale, x[i]);
    const float top = __uint_as_float(__reduce_max_sync(kAllLanes, magnitude_bits(left)));
    const int rest = round_to_byte(left, inverse_of(top));
    to.rest_q[q_at + i * kGroup] = static_cast<std::int8_t>(rest);
    if (lane == 0) to.rest_scale[factor] = __fdiv_rn(top, 127.0f);
    if (to.less != nullptr) {
      const int sum = __reduce_add_sync(kAllLanes, rest);
      if (lane == 0) to.rest_less[factor] = static_cast<float>(-sum);
    }
  }
  if (lane != 0) return;
  // NaN and infinity cannot be rounded. They make the scale NaN, and so the result.
  to.scale[at.block * to.m + at.row] = finite ? scale : __uint_as_float(0x7FC00000u);
  to.rests[at.block * to.m + at.row] = rests;
}

/// A warp per block. The last block of a row is padded with zeros.
template <typename T>
__global__ void __launch_bounds__(kWarps* kWarp) round_rows(const T* x, QuantRows to) {
  let_next_begin();
  wait_for_earlier();
  const std::int64_t index =
      static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / static_cast<unsigned>(kWarp);
  if (index >= to.m * to.blocks) return;
  RowBlock at;
  at.row = index / to.blocks;
  at.block = index % to.blocks;
  at.groups = to.block / kGroup;
  at.first_group = at.block * at.groups;
  const T* from = x + at.row * to.k;
  const std::int64_t first = at.block * to.block + threadIdx.x % static_cast<unsigned>(kWarp);
  float values[kMostGroups];
#pragma unroll
  for (int i = 0; i < kMostGroups; ++i) {
    const std::int64_t k = first + i * kGroup;
    values[i] = i < at.groups && k < to.k ? to_f32(from[k]) : 0.0f;
  }
  round_block(values, at, to);
}

/// Elements of a row that share a scale, for a b of this encoding: those of b's block. With 4 bits,
/// blocks are joined to 128 or 64 elements if K allows.
std::int64_t row_block(const Encoding& b, std::int64_t k) {
  if (b.quant != Quant::kInt4) return b.block;
  const std::int64_t joined = k % 128 == 0 ? 128 : k % 64 == 0 ? 64 : 32;
  return joined % b.block == 0 ? joined : b.block;
}

QuantRows place(const Encoding& b, std::int64_t m, std::int64_t k, Places& places) {
  QuantRows rows;
  rows.m = m;
  rows.k = k;
  rows.block = static_cast<int>(row_block(b, k));
  rows.blocks = ceil_div(k, static_cast<std::int64_t>(rows.block));
  rows.stride = rows.blocks * rows.block;
  const std::int64_t groups = rows.stride / kGroup;
  rows.q = places.take<std::int8_t>(m * rows.stride);
  rows.scale = places.take<float>(m * rows.blocks);
  rows.rests = places.take<std::uint32_t>(m * rows.blocks);
  rows.rest_q = places.take<std::int8_t>(m * rows.stride);
  rows.rest_scale = places.take<float>(m * groups);
  if (format_info(b.quant).minimums) {
    rows.less = places.take<float>(m * groups);
    rows.rest_less = places.take<float>(m * groups);
  }
  return rows;
}

}  // namespace

QuantRows place_quant_rows(const Encoding& b, std::int64_t m, std::int64_t k, std::byte* memory) {
  Places places(memory);
  return place(b, m, k, places);
}

std::int64_t quant_rows_front_bytes(const QuantRows& rows) {
  return round_up(rows.m * rows.stride, Places::kAlignment) +
         2 * round_up(rows.m * rows.blocks * std::int64_t{4}, Places::kAlignment);
}

std::int64_t quant_rows_bytes(const Encoding& b, std::int64_t m, std::int64_t k) {
  Places places(nullptr);
  place(b, m, k, places);
  return places.taken();
}

cudaError_t quantize_rows(DType type, const void* x, const QuantRows& to, const Context& context) {
  if (to.m == 0 || to.blocks == 0) return cudaSuccess;
  const unsigned grid = blocks_for(to.m * to.blocks, kWarps);
  return with_float(type, [&](auto element) {
    using T = typename decltype(element)::type;
    return launch_early(&round_rows<T>, grid, kWarps * kWarp, 0, context, static_cast<const T*>(x),
                        to);
  });
}

}  // namespace volta::cuda
