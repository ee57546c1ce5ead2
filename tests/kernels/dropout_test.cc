// Dropout: the mask that base/rng.h defines, bit for bit on every instruction set, for any length.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "operand.h"

namespace volta::test {
namespace {

Operand rng_of(std::int64_t seed, std::int64_t step) {
  return Operand::of<std::int64_t>(Shape(2), {seed, step});
}

TEST(Dropout, DrawsTheDefinedMask) {
  constexpr std::int64_t kSeed = -0x123456789ABCDEF, kStep = 77;
  constexpr std::uint32_t kStream = 0x80000001u;
  Operand rng = rng_of(kSeed, kStep);
  for (const std::int64_t n : interesting_sizes()) {
    Operand x(Shape(n), random_values(static_cast<std::size_t>(n), 1));
    for (const float p : {0.1f, 0.2f, 0.5f, 0.9f}) {
      std::vector<float> expected(x.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::uint32_t bits = random_bits_at(static_cast<std::uint64_t>(kSeed), kStream,
                                                  static_cast<std::uint32_t>(kStep), i);
        expected[i] = x[i] * (uniform_float(bits) >= p ? 1.0f / (1.0f - p) : 0.0f);
      }
      for_each_simd([&](const cpu::Context& context) {
        Operand y((Shape(n))), in_place = x;
        const Dropout op{p, kStream};
        call(op, {&x, &rng}, {&y}, context);
        EXPECT_EQ(y.values(), expected) << n << " " << p;
        call(op, {&in_place, &rng}, {&in_place}, context);
        EXPECT_EQ(in_place.bytes(), y.bytes());
      });
    }
  }
}

TEST(Dropout, KnownMask) {
  // Philox4x32-10 of key {42, 0} and counters {block, 0, 5, 3}, computed from base/rng.h's
  // published generator; a change of layout would change checkpointed runs.
  Operand rng = rng_of(42, 3), x(Shape(16), std::vector<float>(16, 1.0f));
  for_each_simd([&](const cpu::Context& context) {
    Operand y((Shape(16)));
    call(Dropout{0.5f, 5}, {&x, &rng}, {&y}, context);
    std::string mask;
    for (std::size_t i = 0; i < 16; ++i) mask += y[i] == 0.0f ? '0' : y[i] == 2.0f ? '1' : '?';
    EXPECT_EQ(mask, "0000101101101101");
  });
}

TEST(Dropout, KeepsTheExpectedShareAndDependsOnStreamStepAndSeed) {
  constexpr std::int64_t kCount = 100'000;
  Operand x(Shape(kCount), std::vector<float>(kCount, 1.0f));
  for_each_simd([&](const cpu::Context& context) {
    const auto mask = [&](std::uint32_t stream, std::int64_t seed, std::int64_t step) {
      Operand y((Shape(kCount))), rng = rng_of(seed, step);
      call(Dropout{0.2f, stream}, {&x, &rng}, {&y}, context);
      return y.values();
    };
    const std::vector<float> first = mask(1, 1, 1);
    const auto dropped = static_cast<double>(std::count(first.begin(), first.end(), 0.0f));
    EXPECT_NEAR(dropped / kCount, 0.2, 5 * std::sqrt(0.2 * 0.8 / kCount));
    EXPECT_EQ(mask(1, 1, 1), first);
    EXPECT_NE(mask(2, 1, 1), first);
    EXPECT_NE(mask(1, 2, 1), first);
    EXPECT_NE(mask(1, 1, 2), first);
  });
}

TEST(Dropout, OfProbabilityZeroCopies) {
  Operand x(Shape(37), random_values(37, 1)), rng = rng_of(1, 1);
  for_each_simd([&](const cpu::Context& context) {
    Operand y((Shape(37)));
    call(Dropout{0.0f, 1}, {&x, &rng}, {&y}, context);
    EXPECT_EQ(y.bytes(), x.bytes());
    call(Dropout{0.0f, 1}, {&y, &rng}, {&y}, context);
    EXPECT_EQ(y.bytes(), x.bytes());
  });
}

}  // namespace
}  // namespace volta::test
