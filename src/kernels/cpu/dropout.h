// The rule by which Dropout and the attention ops drop elements, made from an op's attributes and
// its `rng` input. It must not know instruction sets; dropout-inl.h applies it.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace volta::cpu {

/// Which elements are dropped; see Dropout and Attention in ops/op.h.
struct DropoutRule {
  bool on = false;
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;
  std::uint32_t step = 0;
  std::uint32_t threshold = 0;  ///< Kept when the upper 24 bits are at least this.
  float kept_scale = 1.0f;      ///< 1 / (1 - p)
};

/// The rule of an op with `dropout` > 0, whose last input is `rng`; off when it is 0.
inline DropoutRule dropout_rule(float dropout, std::uint32_t stream, const View& rng) {
  DropoutRule rule;
  if (!(dropout > 0.0f)) return rule;
  const std::int64_t* key = rng.as<const std::int64_t>();
  // uniform_float(bits) = (bits >> 8) 2^-24 is at least p exactly when bits >> 8 is at least
  // ceil(p 2^24); the product is exact in double.
  const double scaled = static_cast<double>(dropout) * 0x1p24;
  const auto below = static_cast<std::uint32_t>(scaled);
  rule.on = true;
  rule.seed = static_cast<std::uint64_t>(key[0]);
  rule.stream = stream;
  rule.step = static_cast<std::uint32_t>(key[1]);
  rule.threshold = below + (static_cast<double>(below) < scaled ? 1 : 0);
  rule.kept_scale = 1.0f / (1.0f - dropout);
  return rule;
}

}  // namespace volta::cpu
