// The reference of quant_scalar.h.
#include "quant_scalar.h"

#include <algorithm>
#include <cmath>

#include "tensor/float16.h"

namespace volta::test {
namespace {

// Rounds to multiples of `scale`; gives the sum of the squared errors.
float quantize_int4(const float* x, std::int64_t count, float scale, std::int8_t* q) {
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

}  // namespace

void quantize_block(const float* x, std::int64_t count, Quant quant, WeightBlock& out) {
  float low = 0, high = 0, zeros = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    zeros += x[i] * 0.0f;
  }
  if (zeros != 0.0f) {
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
  WeightBlock candidate;
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

void put_block(const WeightBlock& from, const Encoding& e, std::int64_t blocks, std::int64_t column,
               std::int64_t block, std::uint8_t* data) {
  const bool panels = e.packing == Packing::kPanels;
  const std::int64_t width = panels ? e.width : 1, j = column % width;
  std::uint8_t* at = data + (column / width * blocks + block) * width * e.block_bytes();
  std::uint8_t* bytes = panels ? at : at + 2;
  const std::int64_t scales = panels ? width * e.block * format_info(e.quant).bits / 8 + 2 * j : 0;
  at[scales] = static_cast<std::uint8_t>(from.scale & 0xFF);
  at[scales + 1] = static_cast<std::uint8_t>(from.scale >> 8);
  for (std::int64_t k = 0; k < e.block; ++k) {
    const int q = from.q[static_cast<std::size_t>(k)];
    if (e.quant == Quant::kInt8) {
      bytes[(k / 4 * width + j) * 4 + k % 4] = static_cast<std::uint8_t>(panels ? q + 128 : q);
    } else {
      std::uint8_t& byte = bytes[((k / 32 * 4 + k % 16 / 4) * width + j) * 4 + k % 4];
      byte = static_cast<std::uint8_t>(k % 32 < 16 ? q + 8 : byte | (q + 8) << 4);
    }
  }
}

}  // namespace volta::test
