// Conversions between f32 and the 16-bit float formats, one value at a time. The 16-bit values are
// raw bits. Kernels are tested against these functions, and readers and writers of files use them.
// They know nothing of tensors. C++20-clean, so that kernels of every backend can include it.
#pragma once

#include <bit>
#include <cstdint>

namespace [[gnu::visibility("default")]] volta {

/// f32 to bf16 bits, rounded to nearest even. A NaN becomes a quiet NaN; overflow gives infinity.
constexpr std::uint16_t bf16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/// bf16 bits to f32, exact.
constexpr float f32_from_bf16(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

/// f32 to IEEE half bits, rounded to nearest even. A NaN becomes a quiet NaN, magnitudes of 65520
/// or more become infinity, and small values become subnormal or zero.
constexpr std::uint16_t f16_from_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {  // NaN: keep the top of the payload, set the quiet bit.
    return static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x1FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 65520.
  if (magnitude >= 0x38800000u) {  // Normal halves: from 2^-14. Rebias the exponent by 112.
    const std::uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
  // Subnormal halves are multiples of 2^-24. Shift the 24-bit significand right, rounding to even.
  const std::uint32_t exponent = magnitude >> 23;
  if (exponent < 102) return static_cast<std::uint16_t>(sign);  // Below 2^-25: zero.
  const std::uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
  const std::uint32_t shift = 126u - exponent;
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t odd = (significand >> shift) & 1u;
  return static_cast<std::uint16_t>(sign | ((significand + half - 1u + odd) >> shift));
}

/// IEEE half bits to f32, exact.
constexpr float f32_from_f16(std::uint16_t value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value & 0x8000u) << 16;
  const std::uint32_t exponent = (value >> 10) & 0x1Fu;
  const std::uint32_t fraction = value & 0x3FFu;
  if (exponent == 0x1F) {
    const std::uint32_t quiet = fraction == 0 ? 0 : 0x400000u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | (fraction << 13));
  }
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace volta
