// Argmax and Sample: ties, NaN, every filter against a plain reference, the distribution drawn, and
// independence of the rows of a batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "operand.h"

namespace volta::test {
namespace {

struct Params {
  float temperature = 1.0f, top_k = 0.0f, top_p = 1.0f, min_p = 0.0f, penalty = 1.0f;
};

struct Drawn {
  std::vector<std::int32_t> tokens, counts;
  std::vector<float> logprobs;
};

// One row a set of params, all with the same logits; row r draws with seed `seed` + r.
Drawn sample(const std::vector<float>& logits, const std::vector<Params>& rows, std::int64_t seed,
             const cpu::Context& context, std::vector<std::int32_t> counts = {}) {
  const auto n = static_cast<std::int64_t>(logits.size());
  const auto count = static_cast<std::int64_t>(rows.size());
  std::vector<float> all, params;
  std::vector<std::int64_t> rng;
  if (counts.empty()) counts.resize(logits.size());
  std::vector<std::int32_t> all_counts;
  for (std::int64_t r = 0; r < count; ++r) {
    const Params& p = rows[static_cast<std::size_t>(r)];
    all.insert(all.end(), logits.begin(), logits.end());
    params.insert(params.end(), {p.temperature, p.top_k, p.top_p, p.min_p, p.penalty});
    rng.insert(rng.end(), {seed + r, 5});
    all_counts.insert(all_counts.end(), counts.begin(), counts.end());
  }
  Operand x(Shape(count, n), all), p(Shape(count, 5), params);
  Operand key = Operand::of(Shape(count, 2), rng);
  Operand seen = Operand::ints(Shape(count, n), all_counts);
  Operand token(Shape(count), DType::kI32), logprob((Shape(count)));
  call(Sample{}, {&x, &p, &key, &seen}, {&token, &logprob}, context);
  return {token.values<std::int32_t>(), seen.values<std::int32_t>(), logprob.values()};
}

double logprob_of(const std::vector<float>& logits, std::size_t token) {
  double sum = 0.0;
  const float top = *std::max_element(logits.begin(), logits.end());
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  return static_cast<double>(logits[token]) - top - std::log(sum);
}

TEST(Argmax, TakesTheFirstOfTheLargest) {
  for_each_simd([](const cpu::Context& context) {
    for (std::int64_t n = 1; n <= 40; ++n) {
      for (std::int64_t place = 0; place < n; ++place) {
        std::vector<float> values(static_cast<std::size_t>(2 * n), -1.0f);
        values[static_cast<std::size_t>(place)] = 3.0f;
        values[static_cast<std::size_t>(n - 1)] =
            std::max(values[static_cast<std::size_t>(n - 1)], 3.0f);
        values[static_cast<std::size_t>(n + place)] = kNaN;
        Operand x(Shape(2, n), values), y(Shape(2), DType::kI32);
        call(Argmax{}, {&x}, {&y}, context);
        const auto expected = static_cast<std::int32_t>(place);
        EXPECT_EQ(y.values<std::int32_t>(), (std::vector<std::int32_t>{expected, expected}));
      }
    }
    Operand low(Shape(1, 3), std::vector<float>(3, -kInfinity)), y(Shape(1), DType::kI32);
    call(Argmax{}, {&low}, {&y}, context);
    EXPECT_EQ(y.values<std::int32_t>()[0], 0);
    Operand empty(Shape(1, 0));
    call(Argmax{}, {&empty}, {&y}, context);
    EXPECT_EQ(y.values<std::int32_t>()[0], 0);
  });
}

TEST(Sample, TemperatureZeroIsGreedyAndANegativeOneSkips) {
  const std::vector<float> logits = {0.5f, 2.0f, 2.0f, -1.0f};
  for_each_simd([&](const cpu::Context& context) {
    const Drawn drawn = sample(logits, {{.temperature = 0.0f}, {.temperature = -1.0f}}, 1, context);
    EXPECT_EQ(drawn.tokens, (std::vector<std::int32_t>{1, -1}));
    EXPECT_EQ(drawn.counts, (std::vector<std::int32_t>{0, 1, 0, 0, 0, 0, 0, 0}));
    expect_close(drawn.logprobs[0], logprob_of(logits, 1), 1e-6);
    EXPECT_EQ(drawn.logprobs[1], 0.0f);
  });
}

TEST(Sample, PenalisesTokensSeenBefore) {
  const std::vector<float> logits = {2.0f, 1.5f, -0.1f, -0.2f};
  for_each_simd([&](const cpu::Context& context) {
    const Params greedy = {.temperature = 0.0f, .penalty = 2.0f};
    EXPECT_EQ(sample(logits, {greedy}, 1, context).tokens[0], 0);
    EXPECT_EQ(sample(logits, {greedy}, 1, context, {1, 0, 0, 0}).tokens[0], 1);
    EXPECT_EQ(sample(logits, {greedy}, 1, context, {1, 3, 0, 0}).tokens[0], 0);
    // Negative logits are multiplied: -0.1 becomes less likely than -0.2.
    const Drawn negative =
        sample({-0.1f, -0.15f}, {{.temperature = 0.0f, .penalty = 2.0f}}, 1, context, {2, 0});
    EXPECT_EQ(negative.tokens[0], 1);
    expect_close(negative.logprobs[0], logprob_of({-0.1f, -0.15f}, 1), 1e-6);  // Of the raw ones.
  });
}

// The definition, in double: what each token's probability is after all filters.
std::vector<double> filtered(const std::vector<float>& logits, const Params& params) {
  const std::size_t n = logits.size();
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  std::vector<double> p(n);
  for (std::size_t i = 0; i < n; ++i) {
    p[i] = std::exp((static_cast<double>(logits[i]) - logits[order[0]]) / params.temperature);
  }
  std::size_t kept = n;
  if (params.top_k >= 1) kept = std::min(kept, static_cast<std::size_t>(params.top_k));
  if (params.top_p < 1) {
    double total = 0.0, sum = 0.0;
    for (std::size_t i = 0; i < kept; ++i) total += p[order[i]];
    std::size_t i = 0;
    while (i < kept) {
      sum += p[order[i++]];
      if (sum >= static_cast<double>(params.top_p) * total) break;
    }
    kept = i;
  }
  for (std::size_t i = kept; i < n; ++i) p[order[i]] = 0.0;
  for (double& value : p) value = value < params.min_p ? 0.0 : value;
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= total;
  return p;
}

TEST(Sample, DrawsTheFilteredDistribution) {
  const std::vector<float> logits = {0.1f, 1.7f, 1.7f, -0.4f, 0.9f, 2.3f, -3.0f, 1.7f, 0.0f};
  const std::vector<Params> cases = {
      {},
      {.temperature = 0.5f},
      {.temperature = 3.0f},
      {.top_k = 1},
      {.top_k = 3},  // A tie at the edge: 5, 1, 2 stay, 7 goes.
      {.top_k = 100},
      {.top_p = 0.6f},
      {.top_p = 0.0f},
      {.min_p = 0.3f},
      {.temperature = 0.7f, .top_k = 5, .top_p = 0.8f, .min_p = 0.2f},
  };
  constexpr std::size_t kDraws = 20'000;
  for_each_simd([&](const cpu::Context& context) {
    for (const Params& params : cases) {
      SCOPED_TRACE(testing::Message() << params.temperature << " " << params.top_k << " "
                                      << params.top_p << " " << params.min_p);
      const std::vector<double> expected = filtered(logits, params);
      const Drawn drawn = sample(logits, std::vector<Params>(kDraws, params), 1000, context);
      std::vector<double> share(logits.size());
      for (std::size_t r = 0; r < kDraws; ++r) {
        const auto token = static_cast<std::size_t>(drawn.tokens[r]);
        share[token] += 1.0;
        expect_close(drawn.logprobs[r], logprob_of(logits, token), 0, 1e-6);
      }
      for (std::size_t i = 0; i < logits.size(); ++i) {
        const double p = expected[i];
        // Six standard deviations; what is filtered never comes.
        EXPECT_NEAR(share[i] / kDraws, p, 6 * std::sqrt(p * (1 - p) / kDraws)) << i;
      }
    }
  });
}

// The inverse of the cumulative distribution at the uniform number that Philox gives for the row.
std::size_t expected_draw(const std::vector<double>& p, std::int64_t seed) {
  const Random4 bits = random_bits(static_cast<std::uint64_t>(seed), 0xFFFFFFFFu, 5, 0);
  double left = uniform_double(bits.x, bits.y);
  std::size_t last = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0.0) continue;
    last = i;
    left -= p[i];
    if (left < 0) break;
  }
  return last;
}

TEST(Sample, FiltersALargeVocabularyLikeTheReference) {
  const std::vector<float> logits = random_values(3000, 1, 2.0f);
  const std::vector<Params> rows = {
      {},
      {.top_k = 50},
      {.top_p = 0.5f},
      {.top_p = 0.9f},
      {.top_p = 0.9999f},
      {.top_k = 2000, .top_p = 0.99f},
      {.min_p = 0.1f},
      {.temperature = 0.3f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f}};
  for_each_simd([&](const cpu::Context& context) {
    int different = 0;
    for (std::int64_t seed = 0; seed < 400; seed += 8) {
      const Drawn drawn = sample(logits, rows, seed, context);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const std::size_t token =
            expected_draw(filtered(logits, rows[r]), seed + static_cast<std::int64_t>(r));
        different += token != static_cast<std::size_t>(drawn.tokens[r]) ? 1 : 0;
      }
    }
    EXPECT_LE(different, 1);  // f32 weights move the edges by about 1e-7 of the whole.
  });
}

TEST(Sample, ARowDoesNotDependOnItsBatch) {
  const std::vector<float> logits = random_values(777, 2, 3.0f);
  const Params params = {.temperature = 0.9f, .top_k = 100, .top_p = 0.9f};
  for_each_simd([&](const cpu::Context& context) {
    const Drawn batch = sample(logits, std::vector<Params>(9, params), 50, context);
    for (std::int64_t r = 0; r < 9; ++r) {
      const Drawn alone = sample(logits, {params}, 50 + r, context);
      EXPECT_EQ(alone.tokens[0], batch.tokens[static_cast<std::size_t>(r)]);
      EXPECT_EQ(alone.logprobs[0], batch.logprobs[static_cast<std::size_t>(r)]);
    }
  });
}

TEST(Sample, IsDefinedForLogitsWithoutASoftmax) {
  for_each_simd([](const cpu::Context& context) {
    EXPECT_EQ(sample({1.0f, kNaN, 2.0f}, {{}}, 1, context).tokens[0], 1);
    EXPECT_TRUE(std::isnan(sample({1.0f, kNaN, 2.0f}, {{}}, 1, context).logprobs[0]));
    EXPECT_EQ(sample({1.0f, kInfinity, kInfinity}, {{}}, 1, context).tokens[0], 1);
    EXPECT_EQ(sample({-kInfinity, -kInfinity}, {{}}, 1, context).tokens[0], 0);
    EXPECT_EQ(sample({-kInfinity, 3.0f, -kInfinity}, {{.top_p = 0.5f}}, 1, context).tokens[0], 1);
    // A temperature so small that logits would overflow.
    EXPECT_EQ(sample({1.0f, 3.0f, 2.0f}, {{.temperature = 1e-38f}}, 1, context).tokens[0], 1);
    // One so large that it has no meaning, and a threshold that no token reaches.
    for (const float bad : {kInfinity, kNaN}) {
      const Params hot = {.temperature = bad, .top_k = 2, .top_p = 0.9f};
      EXPECT_EQ(sample({-kInfinity, 1.0f, 3.0f, 2.0f}, {hot}, 1, context).tokens[0], 2);
    }
    EXPECT_EQ(sample({0.0f, 5.0f, 1.0f, 2.0f}, {{.min_p = 1.5f}}, 1, context).tokens[0], 1);
    EXPECT_EQ(sample({}, {{}, {}}, 1, context).tokens, (std::vector<std::int32_t>{0, 0}));
  });
}

}  // namespace
}  // namespace volta::test
