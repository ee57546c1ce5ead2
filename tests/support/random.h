// Draws that only tests need, made of the random words of base/rng.h.
#pragma once

#include "base/rng.h"

namespace volta::test {

/// In [0, 1), with 53 random bits.
inline double next_double(RandomSequence& random) {
  const Random4 r = random.next();
  return uniform_double(r.x, r.y);
}

/// Standard normal.
inline double next_normal(RandomSequence& random) {
  const Random4 r = random.next();
  return normal_pair(r.x, r.y).first;
}

}  // namespace volta::test
