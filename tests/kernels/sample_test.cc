// Argmax and Sample: ties, NaN, every filter against a plain reference, the distribution drawn, and
// independence of the rows of a batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/rng.h"
#include "operand.h"
#include "support/shared_data.h"

namespace volta::test {
namespace {

struct Params {
  float temperature = 1.0f, top_k = 0.0f, top_p = 1.0f, min_p = 0.0f;
  float repetition = 1.0f, frequency = 0.0f, presence = 0.0f;
};

struct Drawn {
  std::vector<std::int32_t> tokens, counts;
  std::vector<float> logprobs;
  std::vector<std::int32_t> top_tokens{};
  std::vector<float> top_logprobs{};
};

// One row a set of params, all with the same logits; row r draws with seed `seed` + r. `counts` are
// those of the prompt, then those of the output.
Drawn sample(const std::vector<float>& logits, const std::vector<Params>& rows, std::int64_t seed,
             const cpu::Context& context, std::vector<std::int32_t> counts = {},
             std::int32_t top = 0) {
  const auto n = static_cast<std::int64_t>(logits.size());
  const auto count = static_cast<std::int64_t>(rows.size());
  std::vector<float> all, params;
  std::vector<std::int64_t> rng;
  counts.resize(2 * logits.size());
  std::vector<std::int32_t> all_counts;
  for (std::int64_t r = 0; r < count; ++r) {
    const Params& p = rows[static_cast<std::size_t>(r)];
    all.insert(all.end(), logits.begin(), logits.end());
    params.insert(params.end(), {p.temperature, p.top_k, p.top_p, p.min_p, p.repetition,
                                 p.frequency, p.presence});
    rng.insert(rng.end(), {seed + r, 5});
    all_counts.insert(all_counts.end(), counts.begin(), counts.end());
  }
  Operand x(Shape(count, n), all), p(Shape(count, kSampleParams), params);
  Operand key = Operand::of(Shape(count, 2), rng);
  Operand seen = Operand::ints(Shape(count, 2, n), all_counts);
  std::vector<std::int32_t> each(rows.size());
  std::iota(each.begin(), each.end(), 0);
  Operand sequences = Operand::ints(Shape(count), each);
  Operand token(Shape(count), DType::kI32), logprob((Shape(count)));
  if (top == 0) {
    call(Sample{}, {&x, &p, &key, &seen, &sequences}, {&token, &logprob}, context);
    return {token.values<std::int32_t>(), seen.values<std::int32_t>(), logprob.values()};
  }
  Operand tops(Shape(count, top), DType::kI32), top_logprobs(Shape(count, top));
  call(Sample{top}, {&x, &p, &key, &seen, &sequences}, {&token, &logprob, &tops, &top_logprobs},
       context);
  return {token.values<std::int32_t>(), seen.values<std::int32_t>(), logprob.values(),
          tops.values<std::int32_t>(), top_logprobs.values()};
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
    EXPECT_EQ(drawn.counts,
              (std::vector<std::int32_t>{0, 0, 0, 0, 0, 1, 0, 0,  // Row 0: prompt, output.
                                         0, 0, 0, 0, 0, 0, 0, 0}));
    expect_close(drawn.logprobs[0], logprob_of(logits, 1), 1e-6);
    EXPECT_EQ(drawn.logprobs[1], 0.0f);
  });
}

TEST(Sample, PenalisesTokensSeenBefore) {
  const std::vector<float> logits = {2.0f, 1.5f, -0.1f, -0.2f};
  for_each_simd([&](const cpu::Context& context) {
    const Params greedy = {.temperature = 0.0f, .repetition = 2.0f};
    EXPECT_EQ(sample(logits, {greedy}, 1, context).tokens[0], 0);
    EXPECT_EQ(sample(logits, {greedy}, 1, context, {1, 0, 0, 0}).tokens[0], 1);
    EXPECT_EQ(sample(logits, {greedy}, 1, context, {1, 3, 0, 0}).tokens[0], 0);
    // Negative logits are multiplied: -0.1 becomes less likely than -0.2.
    const Drawn negative =
        sample({-0.1f, -0.15f}, {{.temperature = 0.0f, .repetition = 2.0f}}, 1, context, {2, 0});
    EXPECT_EQ(negative.tokens[0], 1);
    expect_close(negative.logprobs[0], logprob_of({-0.1f, -0.15f}, 1), 1e-6);  // Of the raw ones.
    // What was drawn counts as what was in the prompt, once.
    EXPECT_EQ(sample(logits, {greedy}, 1, context, {0, 0, 0, 0, 1}).tokens[0], 1);
    EXPECT_EQ(sample(logits, {greedy}, 1, context, {0, 1, 0, 0, 1, 1}).tokens[0], 0);
  });
}

TEST(Sample, FrequencyAndPresenceCountTheOutputOnly) {
  const std::vector<float> logits = {2.0f, 1.5f, 1.0f, -0.2f};
  for_each_simd([&](const cpu::Context& context) {
    const auto greedy = [&](const Params& params, const std::vector<std::int32_t>& counts) {
      return sample(logits, {params}, 1, context, counts).tokens[0];
    };
    const Params frequency = {.temperature = 0.0f, .frequency = 0.4f};
    EXPECT_EQ(greedy(frequency, {9, 0, 0, 0, 0, 0, 0, 0}), 0);
    EXPECT_EQ(greedy(frequency, {0, 0, 0, 0, 1, 0, 0, 0}), 0);
    EXPECT_EQ(greedy(frequency, {0, 0, 0, 0, 2, 0, 0, 0}), 1);
    EXPECT_EQ(greedy(frequency, {0, 0, 0, 0, 3, 2, 0, 0}), 2);
    const Params presence = {.temperature = 0.0f, .presence = 0.6f};
    EXPECT_EQ(greedy(presence, {0, 0, 0, 0, 1, 0, 0, 0}), 1);
    EXPECT_EQ(greedy(presence, {0, 0, 0, 0, 7, 9, 0, 0}), 0);  // How often makes no difference.
    EXPECT_EQ(greedy({.temperature = 0.0f, .presence = -2.0f}, {0, 0, 0, 0, 0, 0, 0, 1}), 0);
    EXPECT_EQ(greedy({.temperature = 0.0f, .frequency = -2.0f}, {0, 0, 0, 0, 0, 0, 0, 2}), 3);
    // After the repetition penalty: 2 / 2 - 0.1 < 1, but (2 - 0.1) / 1.8 would be more than 1.
    const Params both = {.temperature = 0.0f, .repetition = 1.95f, .frequency = 0.1f};
    EXPECT_EQ(greedy(both, {0, 1, 0, 0, 1, 0, 0, 0}), 2);
  });
}

TEST(Sample, TellsTheLikeliestTokens) {
  const std::vector<float> logits = {0.5f, 2.0f, -1.0f, 2.0f, 0.7f};
  for_each_simd([&](const cpu::Context& context) {
    // Of the logits as they are, whatever the penalties and filters make of them.
    const Params params = {.top_k = 1, .presence = 2.0f};
    const Drawn drawn = sample(logits, {params, {.temperature = -1.0f}}, 1, context,
                               {0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, 3);
    EXPECT_EQ(drawn.top_tokens, (std::vector<std::int32_t>{1, 3, 4, -1, -1, -1}));
    for (const std::size_t i : {0u, 1u, 2u}) {
      const auto token = static_cast<std::size_t>(drawn.top_tokens[i]);
      expect_close(drawn.top_logprobs[i], logprob_of(logits, token), 1e-6);
      EXPECT_EQ(drawn.top_logprobs[3 + i], 0.0f);
    }
    EXPECT_EQ(drawn.tokens[0], 3);
    EXPECT_EQ(drawn.logprobs[0], drawn.top_logprobs[1]);  // The same bits.
    const Drawn bad = sample({1.0f, kNaN, 2.0f}, {{}}, 1, context, {}, 2);
    EXPECT_EQ(bad.top_tokens, (std::vector<std::int32_t>{-1, -1}));
    EXPECT_TRUE(std::isnan(bad.top_logprobs[0]));
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

// What transformers' processors leave of a row (make_sampling_goldens.py): the same tokens drawn.
TEST(Sample, DrawsFromWhatTransformersLeaves) {
  std::ifstream file(source_path("tests/kernels/data/sampling.json"));
  ASSERT_TRUE(file);
  const auto golden = nlohmann::json::parse(file);
  const auto logits = golden["logits"].get<std::vector<float>>();
  std::vector<std::int32_t> counts(2 * logits.size());
  for (const std::size_t token : golden["prompt"]) ++counts[token];
  for (const std::size_t token : golden["output"]) ++counts[logits.size() + token];
  for_each_simd([&](const cpu::Context& context) {
    for (const auto& one : golden["cases"]) {
      const Params params = {.temperature = one.value("temperature", 1.0f),
                             .top_k = one.value("top_k", 0.0f),
                             .top_p = one.value("top_p", 1.0f),
                             .min_p = one.value("min_p", 0.0f),
                             .repetition = one.value("repetition", 1.0f)};
      const auto left = one["probabilities"].get<std::vector<double>>();
      constexpr std::int64_t kDraws = 3000;
      const Drawn drawn = sample(logits, std::vector<Params>(kDraws, params), 1, context, counts);
      int different = 0;
      for (std::int64_t r = 0; r < kDraws; ++r) {
        const auto token = static_cast<std::size_t>(drawn.tokens[static_cast<std::size_t>(r)]);
        different += token != expected_draw(left, 1 + r) ? 1 : 0;
        EXPECT_GT(left[token], 0.0);
      }
      EXPECT_LE(different, 1) << params.temperature << " " << params.top_k;  // Edges, by 1e-7.
    }
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
