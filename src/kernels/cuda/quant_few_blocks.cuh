// What a block of a adds to eight columns of a product with a quantised b, for quant_few.cu: a warp
// multiplies up to 16 rows of it by the blocks of b, which lie in shared memory, on the tensor
// cores. quant_product.cuh says in which order scales are applied.
#pragma once

#include <cstdint>

#include "kernels/cuda/quant_product.cuh"

namespace volta::cuda {

/// The rows of a block of a that a thread feeds to the tensor cores: g and g + 8 of the tile, at
/// the thread's words of group 0. A thread without a row of its own reads the last row again, and
/// its sums are not stored.
struct BlockRows {
  const std::int8_t *first, *second;
  const float *first_less, *second_less;
};

// SAFETY: words of a row are multiples of 8 bytes (quant_rows.cuh).
__device__ inline GroupWords load_words(const std::int8_t* row, int group) {
  const int2 words = *reinterpret_cast<const int2*>(row + group * kGroup);
  return {words.x, words.y};
}

/// The block of b of a thread's own column (g), and of the columns of its sums.
struct BlockPlaces {
  const std::uint8_t *own, *even, *odd;
  __device__ BlockPlaces moved(int bytes) const { return {own + bytes, even + bytes, odd + bytes}; }
};

/// part += the products of a block of a with the blocks of b in it; q8 and q4. What is known at
/// compile time is not 0: the groups of a block of b, and the blocks of b in one of a.
template <Quant kQuant, bool kSixteen, int kGroups, int kBlocks>
__device__ inline void add_blocks(const QuantProduct& p, const BlockRows& a, const BlockPlaces& b,
                                  int t, float (&part)[4]) {
  const int groups = kGroups > 0 ? kGroups : p.block / kGroup;
  const int blocks = kBlocks > 0 ? kBlocks : p.b_per_a;
#pragma unroll 4
  for (int block = 0; block < blocks; ++block) {
    const BlockPlaces at = b.moved(block * p.block_bytes);
    int sum[4] = {};
#pragma unroll 4
    for (int group = 0; group < groups; ++group) {
      const int of_a = block * groups + group;
      RowWords words = {load_words(a.first, of_a), {0, 0}};
      if constexpr (kSixteen) words.second = load_words(a.second, of_a);
      multiply_group(sum, words, group_words<kQuant>(at.own, group, t));
    }
    const float even = block_scale<kQuant>(at.even), odd = block_scale<kQuant>(at.odd);
    part[0] = fmaf(static_cast<float>(sum[0]), even, part[0]);
    part[1] = fmaf(static_cast<float>(sum[1]), odd, part[1]);
    if constexpr (kSixteen) {
      part[2] = fmaf(static_cast<float>(sum[2]), even, part[2]);
      part[3] = fmaf(static_cast<float>(sum[3]), odd, part[3]);
    }
  }
}

/// The same for Q4_K and Q5_K. The lanes of a column unpack two of its scales and minimums each.
template <Quant kQuant, bool kSixteen>
__device__ inline void add_block_with_minimums(const QuantProduct& p, const BlockRows& a,
                                               const BlockPlaces& b, int t, float (&part)[4]) {
  const SubScale two[2] = {six_bit_scale(b.own, 2 * t), six_bit_scale(b.own, 2 * t + 1)};
  const int packed =
      two[0].scale | (two[0].minimum << 8) | (two[1].scale << 16) | (two[1].minimum << 24);
  float least[4] = {};
#pragma unroll
  for (int group = 0; group < kMaxBlock / kGroup; ++group) {
    int sum[4] = {};
    RowWords words = {load_words(a.first, group), {0, 0}};
    if constexpr (kSixteen) words.second = load_words(a.second, group);
    multiply_group(sum, words, group_words<kQuant>(b.own, group, t));
    const int from = 2 * t * kGroupThreads + group / 2, shift = group % 2 * 16;
    const int even = __shfl_sync(kAllLanes, packed, from) >> shift;
    const int odd = __shfl_sync(kAllLanes, packed, from + kGroupThreads) >> shift;
    const auto even_scale = static_cast<float>(even & 63), odd_scale = static_cast<float>(odd & 63);
    const auto even_least = static_cast<float>((even >> 8) & 63);
    const auto odd_least = static_cast<float>((odd >> 8) & 63);
    const float less = a.first_less[group * p.a.m];
    part[0] = fmaf(static_cast<float>(sum[0]), even_scale, part[0]);
    part[1] = fmaf(static_cast<float>(sum[1]), odd_scale, part[1]);
    least[0] = fmaf(even_least, less, least[0]);
    least[1] = fmaf(odd_least, less, least[1]);
    if constexpr (kSixteen) {
      const float second_less = a.second_less[group * p.a.m];
      part[2] = fmaf(static_cast<float>(sum[2]), even_scale, part[2]);
      part[3] = fmaf(static_cast<float>(sum[3]), odd_scale, part[3]);
      least[2] = fmaf(even_least, second_less, least[2]);
      least[3] = fmaf(odd_least, second_less, least[3]);
    }
  }
  const float scales[2] = {block_scale<kQuant>(b.even), block_scale<kQuant>(b.odd)};
  const float minimums[2] = {block_minimum(b.even), block_minimum(b.odd)};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    part[i] = fmaf(least[i], minimums[i % 2], __fmul_rn(part[i], scales[i % 2]));
  }
}

/// The same for Q6_K, whose sub-blocks are half groups.
template <bool kSixteen>
__device__ inline void add_six_bit_block(const BlockRows& a, const BlockPlaces& b, int t,
                                         float (&part)[4]) {
#pragma unroll 4
  for (int group = 0; group < kMaxBlock / kGroup; ++group) {
    int low[4] = {}, high[4] = {};
    RowWords words = {load_words(a.first, group), {0, 0}};
    if constexpr (kSixteen) words.second = load_words(a.second, group);
    const GroupWords own = group_words<Quant::kQ6K>(b.own, group, t);
    multiply_half_group(low, words.first.low, words.second.low, own.low);
    multiply_half_group(high, words.first.high, words.second.high, own.high);
    const unsigned even = load_u16(b.even + 192 + 2 * group);
    const unsigned odd = load_u16(b.odd + 192 + 2 * group);
#pragma unroll
    for (int i = 0; i < (kSixteen ? 4 : 2); ++i) {
      const unsigned scales = i % 2 == 0 ? even : odd;
      const auto first = static_cast<float>(static_cast<std::int8_t>(scales & 0xFF));
      const auto second = static_cast<float>(static_cast<std::int8_t>(scales >> 8));
      part[i] = fmaf(static_cast<float>(low[i]), first, part[i]);
      part[i] = fmaf(static_cast<float>(high[i]), second, part[i]);
    }
  }
  const float scales[2] = {block_scale<Quant::kQ6K>(b.even), block_scale<Quant::kQ6K>(b.odd)};
#pragma unroll
  for (int i = 0; i < 4; ++i) part[i] = __fmul_rn(part[i], scales[i % 2]);
}

/// What an element's rest of group `group` of a's block `block` adds, without its scale.
template <Quant kQuant>
__device__ inline float rest_part(const QuantProduct& p, std::int64_t row, std::int64_t column,
                                  std::int64_t block, int group) {
  const std::int64_t of_row = block * (p.a.block / kGroup) + group;
  const int groups = p.block / kGroup;
  const std::uint8_t* at = block_of(p, column, of_row / groups);
  const std::int8_t* q = p.a.rest_q + row * p.a.stride + of_row * kGroup;
  const auto in_block = static_cast<int>(of_row % groups);
  int low = 0, high = 0;
#pragma unroll
  for (int t = 0; t < kGroupThreads; ++t) {
    const GroupWords b = group_words<kQuant>(at, in_block, t);
    const int2 a = *reinterpret_cast<const int2*>(q + 8 * t);
    low = __dp4a(a.x, b.low, low);
    high = __dp4a(a.y, b.high, high);
  }
  const int sums[2] = {BlockFormat<kQuant>::kSubs == 2 ? low : low + high, high};
  const float less = BlockFormat<kQuant>::kMinimums ? p.a.rest_less[of_row * p.a.m + row] : 0.0f;
  return group_part<kQuant>(at, in_block, sums, less);
}

}  // namespace volta::cuda
