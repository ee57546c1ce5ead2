// Attention and AttentionGrad against a reference in double, and their promises: the same bits on
// any number of threads, nothing of a later token in an earlier one, dropout as base/rng.h draws.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention_fixture.h"

namespace volta::test {
namespace {

std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all;
  for (const std::int64_t time : {1, 2, 63, 64, 65, 130}) {
    all.push_back({.batch = 2, .time = time, .heads = 2, .kv_heads = 2, .head_dim = 32});
  }
  for (const std::int32_t dim : {1, 3, 16, 20, 48, 64, 128, 256}) {
    all.push_back({.time = 70, .heads = 1, .kv_heads = 1, .head_dim = dim});
  }
  all.push_back({.batch = 2, .time = 67, .heads = 4, .kv_heads = 2, .head_dim = 16});
  all.push_back({.time = 66, .heads = 6, .kv_heads = 2, .head_dim = 5, .packed = true});
  all.push_back(
      {.batch = 2, .time = 80, .heads = 3, .kv_heads = 3, .head_dim = 64, .packed = true});
  all.push_back({.time = 30, .heads = 3, .kv_heads = 1, .head_dim = 8, .scale = 0.9f});
  for (const std::int32_t window : {1, 2, 17, 64, 100}) {
    all.push_back(
        {.time = 200, .heads = 2, .kv_heads = 1, .head_dim = 16, .window = window, .packed = true});
  }
  for (const std::int64_t time : {5, 64, 131}) {  // Rows that begin inside a block of Philox.
    all.push_back(
        {.batch = 2, .time = time, .heads = 2, .kv_heads = 1, .head_dim = 16, .dropout = 0.25f});
  }
  all.push_back({.time = 150,
                 .heads = 2,
                 .kv_heads = 2,
                 .head_dim = 7,
                 .window = 70,
                 .packed = true,
                 .dropout = 0.5f});
  return all;
}

TEST(Attention, EqualsTheReferenceOnEveryIsa) {
  ThreadPool pool = make_pool(2);
  for (const AttentionCase& c : cases()) {
    const Qkv qkv = random_qkv(c);
    const ReferenceResult expected = reference_attention(c, qkv);
    for (const cpu::Simd simd : available_simd()) {
      SCOPED_TRACE(c.name() + " " + cpu::simd_name(simd));
      const AttentionResult actual = run_attention(c, qkv, {simd, &pool, nullptr});
      expect_near(actual.y, expected.y, "y");
      expect_near(actual.lse, expected.lse, "lse");
    }
  }
}

TEST(AttentionGrad, EqualsTheReferenceOnEveryIsa) {
  ThreadPool pool = make_pool(2);
  for (const AttentionCase& c : cases()) {
    const Qkv qkv = random_qkv(c);
    const std::vector<float> dy = random_values(qkv.q.size(), 5);
    const ReferenceGradients expected = reference_gradients(c, qkv, dy);
    for (const cpu::Simd simd : available_simd()) {
      SCOPED_TRACE(c.name() + " " + cpu::simd_name(simd));
      const cpu::Context context{simd, &pool, nullptr};
      const Qkv actual = run_attention_grad(c, qkv, run_attention(c, qkv, context), dy, context);
      expect_near(actual.q, expected.dq, "dq");
      expect_near(actual.k, expected.dk, "dk");
      expect_near(actual.v, expected.dv, "dv");
    }
  }
}

// The reference's own gradients, against differences of the reference's forward pass.
TEST(AttentionGrad, ReferenceEqualsFiniteDifferences) {
  for (const AttentionCase& c :
       {AttentionCase{.time = 5, .heads = 4, .kv_heads = 2, .head_dim = 3},
        AttentionCase{.time = 6, .heads = 1, .kv_heads = 1, .head_dim = 4, .window = 3},
        AttentionCase{.time = 6, .heads = 2, .kv_heads = 1, .head_dim = 2, .dropout = 0.4f}}) {
    SCOPED_TRACE(c.name());
    Qkv x = random_qkv(c);
    const std::vector<float> dy = random_values(x.q.size(), 5);
    const ReferenceGradients gradients = reference_gradients(c, x, dy);
    const auto loss = [&] {
      const ReferenceResult result = reference_attention(c, x);
      double sum = 0.0;
      for (std::size_t i = 0; i < dy.size(); ++i) {
        sum += static_cast<double>(dy[i]) * result.y[i].value;
      }
      return sum;
    };
    const auto check = [&](std::vector<float>& values, const std::vector<Bounded>& gradient) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float at = values[i];
        const float above = at + 0x1p-10f, below = at - 0x1p-10f;
        values[i] = above;
        double difference = loss();
        values[i] = below;
        difference -= loss();
        values[i] = at;
        // The error of a central difference is h^2 / 6 times the third derivative.
        EXPECT_NEAR(difference / (static_cast<double>(above) - static_cast<double>(below)),
                    gradient[i].value, 1e-4);
      }
    };
    check(x.q, gradients.dq);
    check(x.k, gradients.dk);
    check(x.v, gradients.dv);
  }
}

TEST(Attention, SameBitsOnAnyNumberOfThreads) {
  // One pair (which AttentionGrad splits by blocks), a few, and more than threads.
  for (const AttentionCase& c :
       {AttentionCase{.time = 300, .heads = 1, .kv_heads = 1, .head_dim = 40},
        AttentionCase{.time = 260,
                      .heads = 4,
                      .kv_heads = 1,
                      .head_dim = 32,
                      .window = 90,
                      .packed = true,
                      .dropout = 0.1f},
        AttentionCase{.batch = 5, .time = 130, .heads = 4, .kv_heads = 2, .head_dim = 32}}) {
    const Qkv qkv = random_qkv(c);
    const std::vector<float> dy = random_values(qkv.q.size(), 5);
    for (const cpu::Simd simd : available_simd()) {
      SCOPED_TRACE(c.name() + " " + cpu::simd_name(simd));
      ThreadPool one = make_pool(1);
      const cpu::Context alone{simd, &one, nullptr};
      const AttentionResult expected = run_attention(c, qkv, alone);
      const Qkv expected_grad = run_attention_grad(c, qkv, expected, dy, alone);
      for (const int threads : {2, 3, 8}) {
        ThreadPool pool = make_pool(threads);
        const cpu::Context context{simd, &pool, nullptr};
        EXPECT_EQ(run_attention(c, qkv, context), expected) << threads << " threads";
        const Qkv grad = run_attention_grad(c, qkv, expected, dy, context);
        EXPECT_EQ(grad.q, expected_grad.q) << threads << " threads";
        EXPECT_EQ(grad.k, expected_grad.k) << threads << " threads";
        EXPECT_EQ(grad.v, expected_grad.v) << threads << " threads";
      }
    }
  }
}

TEST(Attention, PackedAndSeparateGiveTheSameBits) {
  ThreadPool pool = make_pool(2);
  AttentionCase c{.batch = 2, .time = 90, .heads = 4, .kv_heads = 2, .head_dim = 24};
  const Qkv qkv = random_qkv(c);
  const std::vector<float> dy = random_values(qkv.q.size(), 5);
  const cpu::Context context{cpu::best_simd(), &pool, nullptr};
  const AttentionResult separate = run_attention(c, qkv, context);
  const Qkv separate_grad = run_attention_grad(c, qkv, separate, dy, context);
  c.packed = true;
  EXPECT_EQ(run_attention(c, qkv, context), separate);
  const Qkv packed_grad = run_attention_grad(c, qkv, separate, dy, context);
  EXPECT_EQ(packed_grad.q, separate_grad.q);
  EXPECT_EQ(packed_grad.k, separate_grad.k);
  EXPECT_EQ(packed_grad.v, separate_grad.v);
}

TEST(Attention, LaterTokensLeaveNoTrace) {
  ThreadPool pool = make_pool(2);
  const AttentionCase c{.time = 100, .heads = 2, .kv_heads = 1, .head_dim = 20};
  const Qkv clean = random_qkv(c);
  for (const std::int64_t bad : {1, 50, 64, 67, 99}) {
    Qkv poisoned = clean;
    const auto at = bad * c.head_dim;
    std::fill_n(poisoned.k.begin() + at, c.head_dim, std::numeric_limits<float>::quiet_NaN());
    std::fill_n(poisoned.v.begin() + at, c.head_dim, std::numeric_limits<float>::infinity());
    for (const cpu::Simd simd : available_simd()) {
      SCOPED_TRACE(std::string(cpu::simd_name(simd)) + " token " + std::to_string(bad));
      const cpu::Context context{simd, &pool, nullptr};
      const std::vector<float> expected = run_attention(c, clean, context).y;
      const std::vector<float> actual = run_attention(c, poisoned, context).y;
      const auto rows = bad * c.heads * c.head_dim;
      EXPECT_TRUE(std::equal(actual.begin(), actual.begin() + rows, expected.begin()));
      for (auto i = actual.begin() + rows; i != actual.end(); ++i) ASSERT_TRUE(std::isnan(*i));
    }
  }
}

TEST(Attention, HugeScoresDoNotOverflow) {
  ThreadPool pool = make_pool(1);
  const AttentionCase c{.time = 70, .heads = 1, .kv_heads = 1, .head_dim = 16, .scale = 1000.0f};
  const Qkv qkv = random_qkv(c);
  for (const cpu::Simd simd : available_simd()) {
    for (const float y : run_attention(c, qkv, {simd, &pool, nullptr}).y) {
      ASSERT_TRUE(std::isfinite(y));
    }
  }
}

// Scores about -256: a maximum that began at 0 would leave nothing but zeros. With a window, rows
// of a tile begin in different blocks.
TEST(Attention, FarNegativeScoresCount) {
  ThreadPool pool = make_pool(1);
  for (const std::int32_t window : {0, 20}) {
    const AttentionCase c{.time = 100, .heads = 2, .kv_heads = 1, .head_dim = 16, .window = window};
    Qkv qkv = random_qkv(c);
    for (float& q : qkv.q) q = 8.0f;
    for (float& k : qkv.k) k = -8.0f + 0.1f * k;
    const ReferenceResult expected = reference_attention(c, qkv);
    for (const cpu::Simd simd : available_simd()) {
      SCOPED_TRACE(c.name() + " " + cpu::simd_name(simd));
      const AttentionResult actual = run_attention(c, qkv, {simd, &pool, nullptr});
      expect_near(actual.y, expected.y, "y");
      expect_near(actual.lse, expected.lse, "lse");
    }
  }
}

TEST(Attention, DropoutKeepsTheExpectation) {
  ThreadPool pool = make_pool(2);
  // With values of 1 every output is the sum of the kept weights over 1 - p.
  const AttentionCase c{
      .batch = 4, .time = 256, .heads = 4, .kv_heads = 4, .head_dim = 1, .dropout = 0.2f};
  Qkv qkv = random_qkv(c);
  std::fill(qkv.k.begin(), qkv.k.end(), 0.0f);
  std::fill(qkv.v.begin(), qkv.v.end(), 1.0f);
  const AttentionResult result = run_attention(c, qkv, {cpu::best_simd(), &pool, nullptr});
  double sum = 0.0, variance = 0.0;
  for (std::int64_t i = 0; i < c.time; ++i) {  // A row of n equal weights: 0.25 / n each.
    variance += 0.25 / static_cast<double>(i + 1);
  }
  for (const float y : result.y) sum += static_cast<double>(y);
  const double rows = static_cast<double>(result.y.size());
  const double deviation = std::sqrt(variance / static_cast<double>(c.time) / rows);
  EXPECT_NEAR(sum / rows, 1.0, 4 * deviation);
}

TEST(Attention, NoRowsIsFine) {
  ThreadPool pool = make_pool(2);
  const AttentionCase c{.batch = 0, .time = 8, .heads = 1, .kv_heads = 1, .head_dim = 4};
  const cpu::Context context{cpu::best_simd(), &pool, nullptr};
  const AttentionResult result = run_attention(c, random_qkv(c), context);
  EXPECT_TRUE(result.y.empty());
  EXPECT_TRUE(run_attention_grad(c, random_qkv(c), result, {}, context).q.empty());
}

}  // namespace
}  // namespace volta::test
