// A block of a row of activations rounded to int8, as products with a weight of integers promise to
// round it (kernels/cpu/quantize_rows.cc), in plain loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace volta::test {

inline float multiply_add(bool fused, float p, float q, float sum) {
  return fused ? std::fma(p, q, sum) : p * q + sum;
}

/// Some elements rounded to int8.
struct Rounded {
  std::vector<int> q;
  float scale;
};
inline Rounded round_to(float top, std::span<const float> x) {
  const float inverse = top > 0x1p-100f ? 127.0f / top : 0.0f;
  Rounded out{{}, top / 127.0f};
  for (const float value : x) {
    out.q.push_back(
        static_cast<int>(std::nearbyintf(std::clamp(value * inverse, -127.0f, 127.0f))));
  }
  return out;
}
inline float largest(std::span<const float> x) {
  float top = 0;
  for (const float value : x) top = std::max(top, std::abs(value));
  return top;
}

/// A block of a row: its integers, and of every 32 elements beyond the block's limit the rest's.
struct RoundedBlock {
  Rounded whole;
  std::vector<std::optional<Rounded>> rests;
};
inline RoundedBlock round_block(std::span<const float> x, bool fused) {
  float quietest = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < x.size(); i += 32) {
    const float top = largest(x.subspan(i, 32));
    if (top > 0x1p-100f) quietest = std::min(quietest, top);
  }
  const float limit = std::min(largest(x), 8 * quietest);
  RoundedBlock out{round_to(limit, x), {}};
  for (std::size_t i = 0; i < x.size(); i += 32) {
    out.rests.emplace_back();
    if (!(largest(x.subspan(i, 32)) > limit)) continue;
    std::vector<float> rest;
    for (std::size_t j = i; j < i + 32; ++j) {
      rest.push_back(
          multiply_add(fused, -static_cast<float>(out.whole.q[j]), out.whole.scale, x[j]));
    }
    out.rests.back() = round_to(largest(rest), rest);
  }
  return out;
}

}  // namespace volta::test
