// Unpacks columns of a quantised b (quant_unpack.cuh). Four threads unpack a group of 32 elements,
// in the order in which the tensor cores take them (quant_format.cuh), and a warp eight consecutive
// groups. Limited by bytes: b is read once, and the unpacked columns are written to the L2 cache.
#include <algorithm>

#include "kernels/cuda/places.h"
#include "kernels/cuda/quant_product.cuh"
#include "kernels/cuda/quant_unpack.cuh"

namespace volta::cuda {
namespace {

constexpr int kThreads = 256;
/// Bytes of integers that are unpacked at once, about.
constexpr std::int64_t kMostBytes = 24 * 1024 * 1024;

UnpackedWeight place(const QuantProduct& p, Places& places) {
  const FormatInfo& format = format_info(p.quant);
  const std::int64_t most =
      round_up(std::max<std::int64_t>(kMostBytes / std::max<std::int64_t>(p.a.stride, 1), 1),
               std::int64_t{kUnpackedColumns});
  const std::int64_t blocks = p.a.blocks * p.b_per_a, groups = p.a.stride / kGroup;
  const bool nested = format.scale_steps != 0;
  UnpackedWeight b;
  b.columns = std::min(most, round_up(p.n, std::int64_t{kUnpackedColumns}));
  b.q = places.take<std::int8_t>(b.columns * p.a.stride);
  b.scale =
      places.take<float>(b.columns * (nested ? groups * (kGroup / format.scale_steps) : blocks));
  if (format.minimums) b.minimum = places.take<float>(b.columns * groups);
  if (nested) b.factor = places.take<float>(2 * b.columns * blocks);
  return b;
}

template <Quant kQuant>
__global__ void __launch_bounds__(kThreads) unpack(const QuantProduct p, const UnpackedWeight to) {
  using Format = BlockFormat<kQuant>;
  const std::int64_t groups = p.a.stride / kGroup;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int t = static_cast<int>(index % kGroupThreads);
  const std::int64_t of_all = index / kGroupThreads;
  if (of_all >= groups * to.columns) return;
  const std::int64_t column = of_all / groups, group = of_all % groups;
  const int per_block = p.block / kGroup, in_block = static_cast<int>(group % per_block);
  const std::int64_t block = group / per_block;
  const std::uint8_t* const from = block_of(p, min(to.first + column, p.n - 1), block);
  const GroupWords words = group_words<kQuant>(from, in_block, t);
  // SAFETY: columns are multiples of 32 bytes, and threads write 8 bytes each.
  *reinterpret_cast<int2*>(to.q + column * p.a.stride + group * kGroup + 8 * t) =
      make_int2(words.low, words.high);
  if constexpr (!Format::kSubScales) {
    if (t == 0 && in_block == 0) {
      to.scale[block * to.columns + column] = block_scale<kQuant>(from);
    }
  } else {
    if constexpr (Format::kMinimums) {
      if (t == 0) {
        const SubScale both = six_bit_scale(from, in_block);
        to.scale[group * to.columns + column] = static_cast<float>(both.scale);
        to.minimum[group * to.columns + column] = static_cast<float>(both.minimum);
      }
    } else if (t < 2) {
      to.scale[(2 * group + t) * to.columns + column] =
          static_cast<float>(byte_scale(from, 2 * in_block + t));
    }
    if (t == 0 && in_block == 0) {
      float* const factor = to.factor + 2 * block * to.columns + column;
      factor[0] = block_scale<kQuant>(from);
      factor[to.columns] = Format::kMinimums ? block_minimum(from) : 0.0f;
    }
  }
}

}  // namespace

UnpackedWeight place_unpacked(const QuantProduct& product, std::byte* memory) {
  Places places(memory);
  return place(product, places);
}

std::int64_t unpacked_bytes(const QuantProduct& product) {
  Places places(nullptr);
  place(product, places);
  return places.taken();
}

cudaError_t unpack_weight(const QuantProduct& product, const UnpackedWeight& to,
                          const Context& context) {
  if (product.a.stride == 0) return cudaSuccess;
  const std::int64_t threads = to.columns * (product.a.stride / kGroup) * kGroupThreads;
  return with_format(product.quant, [&](auto format) {
    return launch_with(&unpack<decltype(format)::value>, ceil_div(threads, std::int64_t{kThreads}),
                       kThreads, 0, context, product, to);
  });
}

}  // namespace volta::cuda
