// Random numbers as a pure function of (seed, stream, step, element): Philox4x32-10, the
// counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011. The same numbers on every device and every number of threads. No state, no
// globals. This header is C++20-clean and usable from CUDA; only the functions for normal values
// are for the host alone.
//
// Layout (fixed: checkpoints and goldens depend on it):
//   key     = { seed bits 0-31, seed bits 32-63 }
//   counter = { element / 4 bits 0-31, element / 4 bits 32-63, stream, step }
//   element e takes lane e % 4 of the block's four words.
// `stream` identifies the consumer of the numbers (an op of the graph, the initialiser of a
// parameter, the batch sampler), `step` the training step or the generated token.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define VOLTA_HOST_DEVICE __host__ __device__
#else
#define VOLTA_HOST_DEVICE
#endif

namespace volta {

/// Four random words: one Philox block.
struct Random4 {
  std::uint32_t x, y, z, w;

  bool operator==(const Random4&) const = default;

  /// Word `lane` (0 to 3) of the block.
  VOLTA_HOST_DEVICE constexpr std::uint32_t lane(std::uint32_t lane) const {
    return lane == 0 ? x : lane == 1 ? y : lane == 2 ? z : w;
  }
};

/// Philox4x32-10 of one counter block under a 64-bit key {key_lo, key_hi}.
VOLTA_HOST_DEVICE constexpr Random4 philox(std::uint32_t key_lo, std::uint32_t key_hi,
                                           Random4 counter) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter.x;
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter.z;
    counter = Random4{
        static_cast<std::uint32_t>(b >> 32) ^ counter.y ^ key_lo, static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter.w ^ key_hi, static_cast<std::uint32_t>(a)};
    key_lo += 0x9E3779B9u;  // The golden ratio.
    key_hi += 0xBB67AE85u;  // sqrt(3) - 1.
  }
  return counter;
}

/// The words of elements 4 * element_block to 4 * element_block + 3 of (seed, stream, step).
VOLTA_HOST_DEVICE constexpr Random4 random_bits(std::uint64_t seed, std::uint32_t stream,
                                                std::uint32_t step, std::uint64_t element_block) {
  return philox(static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                Random4{static_cast<std::uint32_t>(element_block),
                        static_cast<std::uint32_t>(element_block >> 32), stream, step});
}

/// The word of one element of (seed, stream, step).
VOLTA_HOST_DEVICE constexpr std::uint32_t random_bits_at(std::uint64_t seed, std::uint32_t stream,
                                                         std::uint32_t step,
                                                         std::uint64_t element) {
  return random_bits(seed, stream, step, element / 4).lane(static_cast<std::uint32_t>(element % 4));
}

/// A float in [0, 1) with 24 random bits.
VOLTA_HOST_DEVICE constexpr float uniform_float(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

/// A double in [0, 1) with 53 random bits.
VOLTA_HOST_DEVICE constexpr double uniform_double(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>(((std::uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
}

/// An integer in [0, n) from 64 random bits by Lemire's multiply-shift; n is at least 1. The error
/// of each value's probability is at most 2^-64, so no rejection is needed and a draw has a fixed
/// cost.
VOLTA_HOST_DEVICE constexpr std::uint32_t bounded(std::uint32_t high, std::uint32_t low,
                                                  std::uint32_t n) {
  // (high:low * n) >> 64 in two 32x32 products.
  return static_cast<std::uint32_t>((std::uint64_t{high} * n + ((std::uint64_t{low} * n) >> 32)) >>
                                    32);
}

/// Two independent standard normal values.
struct NormalPair {
  double first, second;
};

/// Box and Muller's transform of two random words, in double on the host: first = r cos t and
/// second = r sin t with r = sqrt(-2 ln((a + 1) / 2^32)), t = 2 pi b / 2^32. Never infinite;
/// |value| < 6.7.
NormalPair normal_pair(std::uint32_t a, std::uint32_t b);

/// A standard normal value for one element. Each pair of lanes (0, 1 or 2, 3) gives two values: the
/// first is for the even element, the second for the odd one.
double normal_at(std::uint64_t seed, std::uint32_t stream, std::uint32_t step,
                 std::uint64_t element);

/// Identifies a sequence of random numbers: the key and all of the counter except the element.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;
  std::uint32_t step = 0;

  bool operator==(const RandomKey&) const = default;
};

/// Successive draws with one key, for host code that needs numbers one by one (shuffling,
/// sampling). Draw i uses element block i, so a sequence is as reproducible as the functions above.
class RandomSequence {
 public:
  constexpr explicit RandomSequence(RandomKey key) : key_(key) {}

  constexpr Random4 next() { return random_bits(key_.seed, key_.stream, key_.step, block_++); }
  constexpr float next_float() { return uniform_float(next().x); }
  /// An integer in [0, n); n is at least 1.
  constexpr std::uint32_t next_below(std::uint32_t n) {
    const Random4 r = next();
    return bounded(r.x, r.y, n);
  }

 private:
  RandomKey key_;
  std::uint64_t block_ = 0;
};

}  // namespace volta
