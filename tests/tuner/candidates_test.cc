// The grid: valid, without duplicates, wide enough, and ordered sensibly.
#include "tuner/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "kernels/cpu/matmul_plan.h"

namespace volta::tuner {
namespace {

using cpu::MatMulParameters;
using cpu::MatMulShape;
using cpu::Simd;

constexpr CacheSizes kCaches = {.l1d = 32 << 10, .l2 = 1 << 20, .l3 = 32 << 20};
constexpr Simd kAllSimd[] = {Simd::kSse4, Simd::kAvx2, Simd::kAvx512};

// The kinds of products there are, without sizes.
std::vector<MatMulShape> kinds() {
  std::vector<MatMulShape> all;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const DType a_type : {DType::kF32, type}) {
      all.push_back({.a_type = a_type, .b_type = type, .packed = true});
      for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
          all.push_back({.a_type = a_type,
                         .b_type = type,
                         .packed = false,
                         .transpose_a = transpose_a,
                         .transpose_b = transpose_b});
        }
      }
    }
  }
  return all;
}

std::vector<MatMulShape> shapes() {
  std::vector<MatMulShape> all;
  for (MatMulShape shape : kinds()) {
    for (const auto& [m, n, k] : std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{
             {1, 1, 1},
             {1, 4096, 4096},
             {7, 33, 5},
             {14, 50257, 768},
             {100, 100, 100},
             {2048, 2048, 2048},
             {1 << 24, 1 << 24, 1 << 24}}) {
      shape.m = m;
      shape.n = n;
      shape.k = k;
      all.push_back(shape);
    }
  }
  return all;
}

TEST(Candidates, AreValidDifferentAndOrdered) {
  for (const Simd simd : kAllSimd) {
    for (const MatMulShape& shape : shapes()) {
      SCOPED_TRACE(std::to_string(shape.m) + " " + cpu::simd_name(simd));
      const auto all = candidates(shape, simd, kCaches);
      ASSERT_FALSE(all.empty());
      std::set<std::tuple<int, int, int, int, int, cpu::Prefetch, int>> seen;
      for (const Candidate& candidate : all) {
        const MatMulParameters& p = candidate.parameters;
        EXPECT_TRUE(cpu::valid_parameters(p, simd));
        EXPECT_GT(candidate.cost, 0.0);
        EXPECT_TRUE(seen.insert({p.k_block, p.m_block, p.n_block, p.tile.rows, p.tile.columns,
                                 p.prefetch, p.prefetch_bytes})
                        .second);
      }
      EXPECT_TRUE(std::ranges::is_sorted(all, {}, &Candidate::cost));
    }
  }
}

// What a size allows to tell apart.
TEST(Candidates, CutAProductInDifferentWaysOnly) {
  const auto grid = candidates({.m = 100, .n = 200, .k = 150}, Simd::kAvx2, kCaches);
  std::set<int> k_blocks, m_blocks, n_blocks, prefetch;
  for (const Candidate& candidate : grid) {
    k_blocks.insert(candidate.parameters.k_block);
    m_blocks.insert(candidate.parameters.m_block);
    n_blocks.insert(candidate.parameters.n_block);
    prefetch.insert(candidate.parameters.prefetch_bytes);
  }
  // 150 in 3 blocks of at most 64, 2 of at most 96, or one; 100 in 4 of 25, 3, 2 (64
  // and 96 alike), one; 200 in blocks of 2, 4, 8 panels or all (10 are as many blocks as 8).
  EXPECT_THAT(k_blocks, testing::ElementsAre(64, 96, 152));
  EXPECT_THAT(m_blocks, testing::ElementsAre(32, 48, 64, 100));
  EXPECT_THAT(n_blocks, testing::ElementsAre(32, 64, 80, 128, 208));
  EXPECT_THAT(prefetch, testing::ElementsAre(0, 2048, 4096, 8192, 12288));
}

TEST(Candidates, HoldTheWholeGridOfALargeProduct) {
  const auto grid = candidates({.m = 2048, .n = 2048, .k = 2048}, Simd::kAvx2, kCaches);
  const auto has = [&](auto matches) {
    return std::ranges::any_of(grid, [&](const Candidate& c) { return matches(c.parameters); });
  };
  for (const int k : {64, 96, 128, 160, 192, 256, 384, 512, 768, 1024, 2048}) {
    EXPECT_TRUE(has([&](const MatMulParameters& p) { return p.k_block == k; })) << k;
  }
  for (const int m : {32, 48, 64, 96, 128, 256, 512, 2048}) {
    EXPECT_TRUE(has([&](const MatMulParameters& p) { return p.m_block == m; })) << m;
  }
  for (const cpu::TileShape tile : {cpu::TileShape{6, 16}, {8, 8}, {12, 8}, {16, 8}}) {
    EXPECT_TRUE(has([&](const MatMulParameters& p) { return p.tile == tile; })) << tile.rows;
  }
  EXPECT_FALSE(has([](const MatMulParameters& p) { return p.tile == cpu::TileShape{1, 8}; }));
}

TEST(Candidates, FewRowsGetNoTallTilesAndManyWidths) {
  const auto grid = candidates({.m = 1, .n = 4096, .k = 4096}, Simd::kAvx512, kCaches);
  std::set<int> columns;
  for (const Candidate& candidate : grid) {
    EXPECT_EQ(candidate.parameters.tile.rows, 1);
    columns.insert(candidate.parameters.tile.columns);
  }
  EXPECT_GE(columns.size(), 2u);
}

TEST(Candidates, SlicesThatAreCopiedStayBounded) {
  const MatMulShape shape = {.packed = false, .m = 4096, .n = 50257, .k = 4096};
  for (const Candidate& candidate : candidates(shape, Simd::kAvx512, kCaches)) {
    const auto& p = candidate.parameters;
    EXPECT_LE(
        std::min<std::int64_t>(p.k_block, 4096) * std::min<std::int64_t>(p.n_block, 50272) * 4,
        9 << 20);
  }
}

TEST(Candidates, LeaveOutWhatThisKindDoesNotLookAt) {
  const auto sizes = [](const MatMulShape& shape, std::int32_t least_rows = 1) {
    std::set<int> m_blocks, n_blocks, prefetch;
    for (const Candidate& candidate : candidates(shape, Simd::kAvx512, kCaches)) {
      if (candidate.parameters.tile.rows < least_rows) continue;
      m_blocks.insert(candidate.parameters.m_block);
      n_blocks.insert(candidate.parameters.n_block);
      prefetch.insert(candidate.parameters.prefetch_bytes);
    }
    return std::array{m_blocks.size(), n_blocks.size(), prefetch.size()};
  };
  MatMulShape shape = {.packed = false, .m = 512, .n = 2304, .k = 768};
  EXPECT_EQ(sizes(shape)[0], 1u);  // Copied once for all rows,
  EXPECT_GT(sizes(shape)[1], 4u);
  EXPECT_EQ(sizes(shape)[2], 1u);  // into the caches.
  shape.m = 8;
  EXPECT_EQ(sizes(shape, 8)[1], 1u);  // Read in place by one tile of rows: without slices;
  EXPECT_GT(sizes(shape, 8)[2], 1u);
  EXPECT_GT(sizes(shape)[1], 4u);  // by two shorter ones, with.
  shape.m = 40;
  EXPECT_GT(sizes(shape)[1], 4u);
  shape.b_type = DType::kBF16;
  EXPECT_GT(sizes(shape)[1], 4u);
  // A transposed b is copied even for few rows.
  shape = {.packed = false, .transpose_b = true, .m = 8, .n = 2304, .k = 768};
  EXPECT_GT(sizes(shape)[1], 4u);
  EXPECT_EQ(sizes(shape)[2], 1u);
  // A transposed a is packed; its tiles do not prefetch.
  shape = {.packed = false, .transpose_a = true, .m = 40, .n = 2304, .k = 768};
  EXPECT_GT(sizes(shape)[0], 1u);
  EXPECT_EQ(sizes(shape)[2], 1u);
}

// The kernels say what is the same: see cpu::cut_of().
TEST(Candidates, AreCutInDifferentWays) {
  for (const Simd simd : kAllSimd) {
    for (MatMulShape shape : shapes()) {
      for (const int threads : {1, 2}) {
        shape.threads = threads;
        cpu::MatMulProblem problem{.m = shape.m,
                                   .n = shape.n,
                                   .k = shape.k,
                                   .a_type = shape.a_type,
                                   .b_type = shape.b_type};
        if (shape.packed) problem.b_encoding = cpu::panel_encoding(shape.b_type, false, simd);
        const MatMul op{.transpose_a = shape.transpose_a, .transpose_b = shape.transpose_b};
        std::set<cpu::MatMulCut> seen;
        for (const Candidate& candidate : candidates(shape, simd, kCaches)) {
          const auto plan = cpu::plan_matmul(op, problem, simd, threads, candidate.parameters);
          EXPECT_TRUE(seen.insert(cpu::cut_of(plan)).second);
        }
      }
    }
  }
}

// Where a plain b comes from memory, the default prefetches the next block; so does the grid.
TEST(Candidates, HoldTheDefaultsStrategyOfPrefetching) {
  const MatMulShape shape = {.packed = false, .m = 8, .n = 4096, .k = 4096};
  ASSERT_EQ(cpu::default_parameters(Simd::kAvx2, shape).prefetch, cpu::Prefetch::kNextBlock);
  const auto grid = candidates(shape, Simd::kAvx2, kCaches);
  const auto has = [&](cpu::Prefetch prefetch) {
    return std::ranges::any_of(
        grid, [&](const Candidate& c) { return c.parameters.prefetch == prefetch; });
  };
  EXPECT_TRUE(has(cpu::Prefetch::kNextBlock));
  EXPECT_TRUE(has(cpu::Prefetch::kAhead));
}

TEST(Candidates, ATransposedAHasTilesOfAPanelAtMost) {
  for (const Simd simd : kAllSimd) {
    for (const std::int64_t m : {1, 3, 100}) {
      const MatMulShape shape = {.packed = false, .transpose_a = true, .m = m, .n = 2304, .k = 768};
      for (const Candidate& candidate : candidates(shape, simd, kCaches)) {
        EXPECT_LE(candidate.parameters.tile.columns, cpu::panel_width(simd));
      }
    }
  }
  // What is wider comes to the same, and costs as much.
  const MatMulShape shape = {.packed = false, .transpose_a = true, .m = 1, .n = 512, .k = 64};
  MatMulParameters narrow = cpu::default_parameters(Simd::kAvx2, 100);
  narrow.tile = {1, 16};
  MatMulParameters wide = narrow;
  wide.tile = {1, 128};
  EXPECT_EQ(expected_cost(narrow, shape, Simd::kAvx2, kCaches),
            expected_cost(wide, shape, Simd::kAvx2, kCaches));
}

TEST(Candidates, WhatPacksAPrefersWideSlices) {
  const auto ratio = [](const MatMulShape& shape) {
    MatMulParameters p = cpu::default_parameters(Simd::kAvx2, 1000, false);
    p.n_block = 64;
    const double narrow = expected_cost(p, shape, Simd::kAvx2, kCaches);
    p.n_block = 512;
    return narrow / expected_cost(p, shape, Simd::kAvx2, kCaches);
  };
  const MatMulShape rows = {.packed = false, .m = 768, .n = 2048, .k = 768};
  MatMulShape columns = rows;
  columns.transpose_a = true;
  EXPECT_GT(ratio(columns), ratio(rows));
}

TEST(Candidates, TheModelKnowsItsCaches) {
  const MatMulShape shape = {.m = 1024, .n = 1024, .k = 1024};
  const MatMulParameters long_blocks = {
      .k_block = 1024, .m_block = 1 << 20, .n_block = 1024, .tile = {6, 16}, .prefetch_bytes = 0};
  MatMulParameters short_blocks = long_blocks;
  short_blocks.k_block = 128;
  short_blocks.n_block = 256;
  short_blocks.m_block = 96;
  const CacheSizes small = {.l1d = 32 << 10, .l2 = 512 << 10, .l3 = 2 << 20};
  const CacheSizes large = {.l1d = 1 << 20, .l2 = 64 << 20, .l3 = 512 << 20};
  const auto cost = [&](const MatMulParameters& p, const CacheSizes& caches) {
    return expected_cost(p, shape, Simd::kAvx2, caches);
  };
  EXPECT_LT(cost(short_blocks, small), cost(long_blocks, small));
  EXPECT_LT(cost(long_blocks, large), cost(short_blocks, large));
  EXPECT_GT(cost(long_blocks, {}), 0.0);  // Unknown caches are small ones.
  MatMulParameters thin = short_blocks;
  thin.tile = {1, 8};
  EXPECT_GT(cost(thin, small), 1.5 * cost(short_blocks, small));
}

// The best guess is a good one: where nothing is known but the model, its first candidate is no
// worse than the default (whose blocks may lie between those of the grid).
TEST(Candidates, TheFirstIsNoWorseThanTheDefault) {
  for (const Simd simd : kAllSimd) {
    for (const MatMulShape& shape : shapes()) {
      const auto all = candidates(shape, simd, kCaches);
      EXPECT_LE(all.front().cost,
                1.02 * expected_cost(cpu::default_parameters(simd, shape), shape, simd, kCaches))
          << shape.m << " " << shape.n << " " << shape.k;
    }
  }
}

}  // namespace
}  // namespace volta::tuner
