#include "base/rng.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace volta {
namespace {

// The known answers published with the authors' library (Random123, tests/kat_vectors).
TEST(PhiloxTest, EqualsThePublishedVectors) {
  static_assert(philox(0, 0, {0, 0, 0, 0}) ==
                Random4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox(kOnes, kOnes, {kOnes, kOnes, kOnes, kOnes}),
            (Random4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0xa4093822, 0x299f31d0, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Random4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, LayoutIsFixed) {
  EXPECT_EQ(random_bits(0x299f31d0a4093822, 0x13198a2e, 0x03707344, 0x85a308d3243f6a88),
            (Random4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  for (uint32_t lane = 0; lane < 4; ++lane) {
    EXPECT_EQ(random_bits_at(7, 2, 3, 20 + lane), random_bits(7, 2, 3, 5).lane(lane));
  }
  EXPECT_EQ((Random4{1, 2, 3, 4}.lane(0)), 1u);
  EXPECT_EQ((Random4{1, 2, 3, 4}.lane(3)), 4u);
}

TEST(RngTest, EveryPartOfTheKeyMatters) {
  const Random4 base = random_bits(1, 1, 1, 1);
  EXPECT_NE(base, random_bits(2, 1, 1, 1));
  EXPECT_NE(base, random_bits(1 + (uint64_t{1} << 32), 1, 1, 1));
  EXPECT_NE(base, random_bits(1, 2, 1, 1));
  EXPECT_NE(base, random_bits(1, 1, 2, 1));
  EXPECT_NE(base, random_bits(1, 1, 1, 2));
  EXPECT_NE(base, random_bits(1, 1, 1, 1 + (uint64_t{1} << 32)));
}

TEST(RngTest, UniformCoversZeroToBelowOne) {
  EXPECT_EQ(uniform_float(0), 0.0f);
  EXPECT_EQ(uniform_float(0xffffffff), 1.0f - 0x1p-24f);
  EXPECT_EQ(uniform_double(0, 0), 0.0);
  EXPECT_EQ(uniform_double(0xffffffff, 0xffffffff), 1.0 - 0x1p-53);
  // The mean of n draws has the standard deviation 1 / sqrt(12 n); five of them.
  constexpr int kDraws = 100000;
  double sum = 0;
  for (uint64_t i = 0; i < kDraws; ++i) sum += uniform_float(random_bits_at(42, 0, 0, i));
  EXPECT_NEAR(sum / kDraws, 0.5, 5.0 / std::sqrt(12.0 * kDraws));
}

TEST(RngTest, BoundedIsEvenAndInRange) {
  constexpr int kDraws = 70000;
  std::vector<int> counts(7);
  RandomSequence sequence({.seed = 3, .stream = 1, .step = 0});
  for (int i = 0; i < kDraws; ++i) ++counts[sequence.next_below(7)];
  // A count has the standard deviation sqrt(n p (1 - p)); five of them.
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * std::sqrt(10000.0 * 6 / 7));
  EXPECT_EQ(bounded(0xffffffff, 0xffffffff, 1), 0u);
  EXPECT_EQ(bounded(0xffffffff, 0xffffffff, 0xffffffff), 0xfffffffeu);
  EXPECT_EQ(bounded(0, 0, 0xffffffff), 0u);
}

RC_GTEST_PROP(RngProperties, BoundedStaysBelow, (uint32_t high, uint32_t low)) {
  const uint32_t n = *rc::gen::inRange<uint32_t>(1, 1u << 31);
  RC_ASSERT(bounded(high, low, n) < n);
}

TEST(RngTest, NormalHasTheMomentsOfANormal) {
  constexpr int kDraws = 100000;
  double sum = 0, squares = 0, fourth = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double v = normal_at(5, 2, 0, i);
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
  }
  // Standard deviations of the three means: 1, sqrt(2) and sqrt(96), over sqrt(n); five of them.
  const double root = std::sqrt(double{kDraws});
  EXPECT_NEAR(sum / kDraws, 0, 5 / root);
  EXPECT_NEAR(squares / kDraws, 1, 5 * std::sqrt(2.0) / root);
  EXPECT_NEAR(fourth / kDraws, 3, 5 * std::sqrt(96.0) / root);
}

TEST(RngTest, NormalIsFiniteAtTheEdges) {
  for (const uint32_t a : {0u, 0xffffffffu}) {
    for (const uint32_t b : {0u, 0xffffffffu}) {
      const NormalPair pair = normal_pair(a, b);
      EXPECT_TRUE(std::isfinite(pair.first) && std::isfinite(pair.second));
    }
  }
  EXPECT_EQ(normal_pair(0xffffffff, 0).first, 0.0);
  EXPECT_NEAR(normal_pair(0, 0).first, 6.66, 0.01);
}

TEST(RngTest, NormalLanesAreTheDocumentedPairs) {
  const Random4 r = random_bits(9, 8, 7, 0);
  EXPECT_EQ(normal_at(9, 8, 7, 0), normal_pair(r.x, r.y).first);
  EXPECT_EQ(normal_at(9, 8, 7, 1), normal_pair(r.x, r.y).second);
  EXPECT_EQ(normal_at(9, 8, 7, 2), normal_pair(r.z, r.w).first);
  EXPECT_EQ(normal_at(9, 8, 7, 3), normal_pair(r.z, r.w).second);
}

TEST(RandomSequenceTest, IsReproducibleAndAdvances) {
  const RandomKey key{.seed = 11, .stream = 4, .step = 9};
  RandomSequence a(key), b(key);
  std::set<uint32_t> words;
  for (int i = 0; i < 100; ++i) {
    const Random4 r = a.next();
    EXPECT_EQ(r, b.next());
    words.insert(r.x);
  }
  EXPECT_GT(words.size(), 98u);
  RandomSequence c(key);
  EXPECT_EQ(c.next_float(), uniform_float(random_bits(11, 4, 9, 0).x));
  const Random4 second = random_bits(11, 4, 9, 1);
  EXPECT_EQ(c.next_below(1000), bounded(second.x, second.y, 1000));
}

}  // namespace
}  // namespace volta
