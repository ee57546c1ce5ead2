// The functions of rng.h that need the host's math library.
#include "base/rng.h"

#include <cmath>
#include <numbers>

namespace volta {

NormalPair normal_pair(std::uint32_t a, std::uint32_t b) {
  const double u = (static_cast<double>(a) + 1.0) * 0x1p-32;  // In (0, 1]: the logarithm is finite.
  const double angle = 2.0 * std::numbers::pi * static_cast<double>(b) * 0x1p-32;
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

double normal_at(std::uint64_t seed, std::uint32_t stream, std::uint32_t step,
                 std::uint64_t element) {
  const Random4 r = random_bits(seed, stream, step, element / 4);
  const NormalPair pair = element % 4 < 2 ? normal_pair(r.x, r.y) : normal_pair(r.z, r.w);
  return element % 2 == 0 ? pair.first : pair.second;
}

}  // namespace volta
