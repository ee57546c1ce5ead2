// Reads the stored blocks of quantised weights (tensor/weight_format.h) on the GPU, in pieces as
// the tensor cores take them. A block is cut into groups of 32 elements. Of a group, thread t of
// four threads takes elements 4 t to 4 t + 3 and 16 + 4 t to 16 + 4 t + 3: these are words `low`
// and `high` of four signed bytes. In Q4 both come from the same four bytes of the block.
//
// Addresses of blocks are even. Those of Q4_K and Q5_K are multiples of four, because their sizes
// and a weight's address are.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "tensor/weight_format.h"

namespace volta::cuda {

/// Elements that are multiplied together, and the threads among which they are divided.
inline constexpr int kGroup = 32;
inline constexpr int kGroupThreads = 4;

/// Four elements each; see above.
struct GroupWords {
  int low, high;
};

/// A format as kernels need it at compile time.
template <Quant kQuant>
struct BlockFormat {
  static constexpr bool kMinimums = format_info(kQuant).minimums;
  static constexpr int kSteps = format_info(kQuant).scale_steps;
  static constexpr int kScaleAt = format_info(kQuant).scale_at;
  static constexpr bool kSubScales = kSteps != 0;
  /// Integer scales per group: none, 1 or 2.
  static constexpr int kSubs = kSubScales ? kGroup / kSteps : 0;
};

// SAFETY: `at` is inside a block and even, or a multiple of 4 for load_u32.
__device__ inline unsigned load_u16(const std::uint8_t* at) {
  return *reinterpret_cast<const std::uint16_t*>(at);
}
__device__ inline unsigned load_u32(const std::uint8_t* at) {
  return *reinterpret_cast<const std::uint32_t*>(at);
}
/// The four bytes at an even address.
__device__ inline unsigned load_bytes(const std::uint8_t* at) {
  return load_u16(at) | (load_u16(at + 2) << 16);
}
/// The f16 at an even address.
__device__ inline float load_half(const std::uint8_t* at) {
  return __half2float(*reinterpret_cast<const __half*>(at));
}

/// The low four bits of every byte of `word`, after a shift to the right.
__device__ inline unsigned four_bits(unsigned word, int shift) {
  return (word >> shift) & 0x0F0F0F0Fu;
}
/// Subtracts kOffset from every byte, which is at most 127 - kOffset. Adding 128 - kOffset first
/// keeps the bytes from borrowing from each other; flipping the top bit subtracts the 128.
template <unsigned kOffset>
__device__ inline int subtract_offset(unsigned word) {
  return static_cast<int>((word + (128u - kOffset) * 0x01010101u) ^ 0x80808080u);
}

/// Thread t's words of group `group` of a block.
template <Quant kQuant>
__device__ inline GroupWords group_words(const std::uint8_t* block, int group, int t) {
  if constexpr (kQuant == Quant::kInt8) {
    const std::uint8_t* q = block + 2 + group * kGroup + 4 * t;
    return {static_cast<int>(load_bytes(q)), static_cast<int>(load_bytes(q + 16))};
  } else if constexpr (kQuant == Quant::kInt4) {
    const unsigned word = load_bytes(block + 2 + group * (kGroup / 2) + 4 * t);
    return {subtract_offset<8>(four_bits(word, 0)), subtract_offset<8>(four_bits(word, 4))};
  } else if constexpr (kQuant == Quant::kQ4K || kQuant == Quant::kQ5K) {
    constexpr int kLow = kQuant == Quant::kQ5K ? 48 : 16;
    const std::uint8_t* q = block + kLow + group / 2 * 32 + 4 * t;
    const int shift = group % 2 * 4;
    unsigned low = four_bits(load_u32(q), shift), high = four_bits(load_u32(q + 16), shift);
    if constexpr (kQuant == Quant::kQ5K) {
      const std::uint8_t* fifth = block + 16 + 4 * t;
      low |= ((load_u32(fifth) >> group) & 0x01010101u) << 4;
      high |= ((load_u32(fifth + 16) >> group) & 0x01010101u) << 4;
    }
    return {static_cast<int>(low), static_cast<int>(high)};
  } else {
    static_assert(kQuant == Quant::kQ6K);
    const int half = group / 4, run = group % 4;
    const std::uint8_t* q = block + half * 64 + run % 2 * 32 + 4 * t;
    const std::uint8_t* top = block + 128 + half * 32 + 4 * t;
    const int shift = run / 2 * 4;
    const auto six_bits = [&](int at) {
      const unsigned two = (load_bytes(top + at) >> (2 * run)) & 0x03030303u;
      return subtract_offset<32>(four_bits(load_bytes(q + at), shift) | (two << 4));
    };
    return {six_bits(0), six_bits(16)};
  }
}

/// The f16 scale of a block.
template <Quant kQuant>
__device__ inline float block_scale(const std::uint8_t* block) {
  return load_half(block + BlockFormat<kQuant>::kScaleAt);
}
/// The f16 factor of the minimums of a block of Q4_K or Q5_K.
__device__ inline float block_minimum(const std::uint8_t* block) { return load_half(block + 2); }

/// The integer scale and minimum of sub-block `sub` of 32 elements of Q4_K or Q5_K, in 6 bits each
/// (see read_k_scales in tensor/weight_format.h).
struct SubScale {
  int scale, minimum;
};
__device__ inline SubScale six_bit_scale(const std::uint8_t* block, int sub) {
  const std::uint8_t* at = block + 4;
  if (sub < 4) return {at[sub] & 63, at[sub + 4] & 63};
  return {(at[sub + 4] & 15) | (at[sub - 4] >> 6 << 4), (at[sub + 4] >> 4) | (at[sub] >> 6 << 4)};
}
/// The integer scale of sub-block `sub` of 16 elements of Q6_K.
__device__ inline int byte_scale(const std::uint8_t* block, int sub) {
  return static_cast<std::int8_t>(block[192 + sub]);
}

/// The value of element `i` of a block, rounded as decode_block (tensor/weight_format.h) does.
template <Quant kQuant>
__device__ inline float decode_element(const std::uint8_t* block, int i) {
  const int group = i / kGroup, place = i % kGroup;
  const GroupWords words = group_words<kQuant>(block, group, place % 16 / 4);
  const int word = place < 16 ? words.low : words.high;
  const auto q = static_cast<float>(static_cast<std::int8_t>(word >> (8 * (place % 4))));
  const float scale = block_scale<kQuant>(block);
  if constexpr (!BlockFormat<kQuant>::kSubScales) {
    return __fmul_rn(scale, q);
  } else if constexpr (BlockFormat<kQuant>::kMinimums) {
    const SubScale sub = six_bit_scale(block, group);
    const float value = __fmul_rn(__fmul_rn(scale, static_cast<float>(sub.scale)), q);
    return __fsub_rn(value, __fmul_rn(block_minimum(block), static_cast<float>(sub.minimum)));
  } else {
    const float step = __fmul_rn(scale, static_cast<float>(byte_scale(block, i / 16)));
    return __fmul_rn(step, q);
  }
}

/// Decodes an element of any format; for kernels that are limited by something else.
__device__ inline float decode_element(Quant quant, const std::uint8_t* block, int i) {
  switch (quant) {
    case Quant::kInt8:
      return decode_element<Quant::kInt8>(block, i);
    case Quant::kInt4:
      return decode_element<Quant::kInt4>(block, i);
    case Quant::kQ4K:
      return decode_element<Quant::kQ4K>(block, i);
    case Quant::kQ5K:
      return decode_element<Quant::kQ5K>(block, i);
    case Quant::kQ6K:
      return decode_element<Quant::kQ6K>(block, i);
    case Quant::kNone:
      break;
  }
  return 0.0f;
}

}  // namespace volta::cuda
