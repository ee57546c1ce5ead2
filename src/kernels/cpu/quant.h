// One block of quantised weights at a time: rounding, and the two layouts of tensor/encoding.h.
// Plain loops, for what runs once a weight; the matrix product has its own reader of panels.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensor/encoding.h"
#include "tensor/float16.h"

namespace volta::cpu {

/// A block along K of one column: up to 256 integers and the f16 bits of their scale.
struct QuantBlock {
  std::uint16_t scale = 0;
  std::array<std::int8_t, 256> q{};
};

/// scale * q, where the scale would be the multiple `step` of the largest magnitude; and the sum of
/// the squared errors.
inline float quantize_int4(const float* x, std::int64_t count, float scale, std::int8_t* q) {
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  float error = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float rounded = std::clamp(std::nearbyintf(x[i] * inverse), -8.0f, 7.0f);
    const float off = rounded * scale - x[i];
    error += off * off;
    q[i] = static_cast<std::int8_t>(rounded);
  }
  return error;
}

/// Rounds `count` values. int8: the nearest of 255 even steps. int4: 16 steps, of which the lowest
/// is at the largest magnitude or near it: the best of a few scales by the sum of squared errors.
inline void quantize_block(const float* x, std::int64_t count, Quant quant, QuantBlock& out) {
  float low = 0, high = 0, zeros = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    zeros += x[i] * 0.0f;
  }
  if (zeros != 0.0f) {  // NaN: something is not finite, and must not look like a number.
    out.scale = 0x7E00;
    std::fill_n(out.q.begin(), count, std::int8_t{1});
    return;
  }
  const float largest = -low > high ? low : high;
  if (quant == Quant::kInt8) {
    out.scale = f16_from_f32(std::abs(largest) / 127.0f);
    const float scale = f32_from_f16(out.scale);
    const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    for (std::int64_t i = 0; i < count; ++i) {
      const float rounded = std::clamp(std::nearbyintf(x[i] * inverse), -127.0f, 127.0f);
      out.q[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(rounded);
    }
    return;
  }
  QuantBlock candidate;
  float best = -1;
  for (const float steps : {8.0f, 7.0f, 7.5f, 8.5f, 7.75f, 8.25f}) {
    candidate.scale = f16_from_f32(largest / -steps);
    const float error = quantize_int4(x, count, f32_from_f16(candidate.scale), candidate.q.data());
    if (best < 0 || error < best) {
      best = error;
      out = candidate;
    }
  }
}

// Where a block lies. SAFETY of all below: `at` is the address of a column's block in rows, or of a
// panel's block in panels, and the caller owns its bytes.

inline void put_in_rows(const QuantBlock& from, const Encoding& e, std::uint8_t* at) {
  std::memcpy(at, &from.scale, 2);
  at += 2;
  if (e.quant == Quant::kInt8) {
    std::memcpy(at, from.q.data(), static_cast<std::size_t>(e.block));
    return;
  }
  for (std::int64_t k = 0; k < e.block; ++k) {
    std::uint8_t& byte = at[k / 32 * 16 + k % 16];
    const int q = from.q[static_cast<std::size_t>(k)] + 8;
    byte = static_cast<std::uint8_t>(k % 32 < 16 ? q : byte | q << 4);
  }
}

inline void get_from_rows(const std::uint8_t* at, const Encoding& e, QuantBlock& to) {
  std::memcpy(&to.scale, at, 2);
  at += 2;
  if (e.quant == Quant::kInt8) {
    std::memcpy(to.q.data(), at, static_cast<std::size_t>(e.block));
    return;
  }
  for (std::int64_t k = 0; k < e.block; ++k) {
    const int byte = at[k / 32 * 16 + k % 16];
    to.q[static_cast<std::size_t>(k)] =
        static_cast<std::int8_t>((k % 32 < 16 ? byte & 15 : byte >> 4) - 8);
  }
}

/// The byte of step k of column j in a panel's block.
inline std::int64_t byte_in_panel(const Encoding& e, std::int64_t k, std::int64_t j) {
  if (e.quant == Quant::kInt8) return (k / 4 * e.width + j) * 4 + k % 4;
  return ((k / 32 * 4 + k % 16 / 4) * e.width + j) * 4 + k % 4;
}
inline std::int64_t scales_in_panel(const Encoding& e) {
  return std::int64_t{e.width} * e.block * quant_bits(e.quant) / 8;
}

inline void put_in_panel(const QuantBlock& from, const Encoding& e, std::int64_t j,
                         std::uint8_t* at) {
  for (std::int64_t k = 0; k < e.block; ++k) {
    std::uint8_t& byte = at[byte_in_panel(e, k, j)];
    const int q = from.q[static_cast<std::size_t>(k)];
    if (e.quant == Quant::kInt8) {
      byte = static_cast<std::uint8_t>(q + 128);
    } else {
      byte = static_cast<std::uint8_t>(k % 32 < 16 ? q + 8 : byte | (q + 8) << 4);
    }
  }
  std::memcpy(at + scales_in_panel(e) + 2 * j, &from.scale, 2);
}

inline void get_from_panel(const std::uint8_t* at, const Encoding& e, std::int64_t j,
                           QuantBlock& to) {
  for (std::int64_t k = 0; k < e.block; ++k) {
    const int byte = at[byte_in_panel(e, k, j)];
    const int q = e.quant == Quant::kInt8 ? byte - 128 : (k % 32 < 16 ? byte & 15 : byte >> 4) - 8;
    to.q[static_cast<std::size_t>(k)] = static_cast<std::int8_t>(q);
  }
  std::memcpy(&to.scale, at + scales_in_panel(e) + 2 * j, 2);
}

/// A column's block in either layout.
inline void get_block(const std::uint8_t* data, const Encoding& e, std::int64_t blocks,
                      std::int64_t column, std::int64_t block, QuantBlock& to) {
  if (e.packing == Packing::kRows) {
    get_from_rows(data + (column * blocks + block) * e.block_bytes(), e, to);
  } else {
    get_from_panel(data + (column / e.width * blocks + block) * e.width * e.block_bytes(), e,
                   column % e.width, to);
  }
}
inline void put_block(const QuantBlock& from, const Encoding& e, std::int64_t blocks,
                      std::int64_t column, std::int64_t block, std::uint8_t* data) {
  if (e.packing == Packing::kRows) {
    put_in_rows(from, e, data + (column * blocks + block) * e.block_bytes());
  } else {
    put_in_panel(from, e, column % e.width,
                 data + (column / e.width * blocks + block) * e.width * e.block_bytes());
  }
}

}  // namespace volta::cpu
