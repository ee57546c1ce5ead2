// What may be tuned: defaults that are valid, tiles that exist, and the lookup of choices.
#include "kernels/cpu/matmul_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/matmul_plan.h"

namespace volta::cpu {
namespace {

TEST(MatMulParameters, DefaultsAreValidForEveryNumberOfRows) {
  for (const Simd simd : cpu::kAllSimd) {
    for (const std::int64_t m : {0, 1, 2, 3, 4, 6, 8, 13, 14, 15, 100, 1 << 30}) {
      const MatMulParameters p = default_parameters(simd, m);
      EXPECT_TRUE(valid_parameters(p, simd)) << simd_name(simd) << " " << m;
      EXPECT_LE(p.tile.rows, std::max<std::int64_t>(m, 1));
    }
    EXPECT_EQ(default_parameters(simd, 100), default_parameters(simd, 5000));
    const std::int32_t most_rows = default_parameters(simd, 100).tile.rows;
    EXPECT_TRUE(has_tile(simd, most_rows, 2));
    EXPECT_FALSE(has_tile(simd, most_rows + 1, 2));
    EXPECT_GT(default_parameters(simd, 1).tile.columns, panel_width(simd));
  }
}

TEST(MatMulParameters, DefaultsOfAPlainWeightGoByWhereItLies) {
  for (const Simd simd : cpu::kAllSimd) {
    const auto of = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
      const MatMulParameters p =
          default_parameters(simd, MatMulShape{.packed = false, .m = m, .n = n, .k = k});
      EXPECT_TRUE(valid_parameters(p, simd)) << simd_name(simd) << " " << m;
      return p;
    };
    const auto row_bytes = static_cast<std::int32_t>(panel_width(simd) * 4);
    // In caches: all of K for one tile of rows, and a few rows ahead; fewer where they are aliased.
    EXPECT_GE(of(2, 2304, 768).k_block, 768);
    EXPECT_EQ(of(8, 2304, 768).prefetch_bytes, 8 * row_bytes);
    EXPECT_EQ(of(8, 3072, 768).prefetch_bytes, 4 * row_bytes);
    EXPECT_EQ(of(32, 2304, 768).k_block, default_parameters(simd, 32, false).k_block);
    // From memory: the next block is prefetched, a row of it by each tile.
    const MatMulParameters far = of(8, 4096, 4096);
    EXPECT_EQ(far.prefetch, Prefetch::kNextBlock);
    EXPECT_EQ(far.prefetch_bytes, 0);
    EXPECT_EQ(far.n_block, far.k_block * far.tile.columns);
    EXPECT_GT(of(4, 4096, 4096).k_block, far.k_block);
    // What is copied on the way, transposed or of many rows, has those of no place.
    MatMulShape copied{.packed = false, .transpose_b = true, .m = 8, .n = 4096, .k = 4096};
    EXPECT_EQ(default_parameters(simd, copied), default_parameters(simd, 8, false));
    EXPECT_EQ(of(200, 4096, 4096), default_parameters(simd, 200, false));
    EXPECT_EQ(of(1, 4096, 4096), default_parameters(simd, 1, false));
  }
}

TEST(MatMulParameters, TwoTilesOfRowsMeetALargeWeightInL2) {
  for (const Simd simd : cpu::kAllSimd) {
    const auto of = [&](std::int64_t m, std::int64_t n) {
      return default_parameters(simd, MatMulShape{.packed = true, .m = m, .n = n, .k = 4096});
    };
    const MatMulParameters usual = of(100, 4096);
    const std::int64_t two = 2 * std::int64_t{usual.tile.rows};
    EXPECT_TRUE(valid_parameters(of(two, 4096), simd));
    EXPECT_LT(of(two, 4096).n_block * of(two, 4096).k_block, usual.n_block * usual.k_block);
    EXPECT_EQ(of(two, 768), usual);
    EXPECT_EQ(of(two + 1, 4096), usual);
  }
}

// As many elements whatever K: shorter blocks of K have more columns.
TEST(MatMulParameters, ASliceOfAShortKHasMoreColumns) {
  for (const Simd simd : cpu::kAllSimd) {
    const auto columns = [&](std::int64_t k) {
      return default_parameters(simd, MatMulShape{.packed = true, .m = 100, .n = 4096, .k = k})
          .n_block;
    };
    EXPECT_EQ(columns(3072), default_parameters(simd, 100).n_block);
    EXPECT_EQ(columns(768), 4 * columns(3072));
    EXPECT_EQ(columns(1 << 20) % panel_width(simd), 0);
    EXPECT_GE(columns(1), columns(768));
  }
}

TEST(MatMulParameters, TilesFitTheRegisters) {
  const auto has = [](Simd simd, TileShape tile) {
    return std::ranges::find(tile_shapes(simd), tile) != tile_shapes(simd).end();
  };
  for (const TileShape tile : {TileShape{4, 8}, {8, 8}, {12, 8}, {16, 8}, {6, 16}}) {
    EXPECT_TRUE(has(Simd::kAvx2, tile)) << tile.rows << "x" << tile.columns;
  }
  EXPECT_TRUE(has(Simd::kAvx512, {14, 32}));
  EXPECT_TRUE(has(Simd::kSse4, {4, 8}));
  EXPECT_FALSE(has(Simd::kAvx512, {15, 32}));
  EXPECT_FALSE(has(Simd::kAvx2, {7, 16}));
  EXPECT_FALSE(has(Simd::kAvx2, {0, 8}));
  EXPECT_FALSE(has(Simd::kSse4, {9, 4}));
  for (const Simd simd : cpu::kAllSimd) {
    EXPECT_FALSE(has_tile(simd, kMostRows + 1, 1));
    EXPECT_FALSE(has_tile(simd, 1, 3));
    for (const TileShape& tile : tile_shapes(simd)) {
      EXPECT_EQ(std::ranges::count(tile_shapes(simd), tile), 1);
    }
  }
}

TEST(MatMulParameters, WhatNoKernelTakesIsInvalid) {
  const MatMulParameters good = default_parameters(Simd::kAvx2, 100);
  const auto with = [&](auto change) {
    MatMulParameters p = good;
    change(p);
    return valid_parameters(p, Simd::kAvx2);
  };
  EXPECT_TRUE(valid_parameters(good, Simd::kAvx2));
  EXPECT_FALSE(valid_parameters({}, Simd::kAvx2));
  for (const std::int32_t k : {-8, 0, 4, 100, (1 << 20) + 8}) {
    EXPECT_FALSE(with([&](MatMulParameters& p) { p.k_block = k; })) << k;
  }
  for (const std::int32_t m : {-1, 0, (1 << 20) + 1}) {
    EXPECT_FALSE(with([&](MatMulParameters& p) { p.m_block = m; })) << m;
  }
  for (const std::int32_t n : {-16, 0, 8, 24, (1 << 20) + 16}) {
    EXPECT_FALSE(with([&](MatMulParameters& p) { p.n_block = n; })) << n;
  }
  for (const std::int32_t bytes : {-1, (1 << 20) + 1}) {
    EXPECT_FALSE(with([&](MatMulParameters& p) { p.prefetch_bytes = bytes; })) << bytes;
  }
  EXPECT_FALSE(with([](MatMulParameters& p) { p.tile = {7, 16}; }));
  EXPECT_FALSE(with([](MatMulParameters& p) { p.prefetch = Prefetch::kNextBlock; }));
  EXPECT_TRUE(with([](MatMulParameters& p) {
    p.prefetch = Prefetch::kNextBlock;
    p.prefetch_bytes = 0;
  }));
  EXPECT_FALSE(valid_parameters(good, Simd::kSse4));  // Twice as many vectors there.
}

TEST(MatMulParameters, RowsCountInClasses) {
  EXPECT_EQ(row_class(0), 1);
  EXPECT_EQ(row_class(1), 1);
  EXPECT_EQ(row_class(3), 4);
  EXPECT_EQ(row_class(64), 64);
  EXPECT_EQ(row_class(65), 128);
  EXPECT_EQ(row_class(512), 512);
  EXPECT_EQ(row_class(513), std::numeric_limits<std::int64_t>::max());
}

MatMulParameters numbered(std::int32_t number) {
  MatMulParameters p = default_parameters(Simd::kAvx2, 100);
  p.m_block = number;
  return p;
}

TEST(MatMulTuning, FindsTheSameShapeOrTheNearestOfItsClass) {
  MatMulTuning tuning;
  const MatMulShape base = {.threads = 2, .m = 100, .n = 768, .k = 3072};
  EXPECT_FALSE(tuning.find(base));
  tuning.set(base, numbered(1));
  MatMulShape near = base;
  near.n = 1000;  // Of the same power of two: 512 to 1023.
  tuning.set(near, numbered(2));
  EXPECT_EQ(tuning.size(), 2u);
  EXPECT_EQ(tuning.find(base), numbered(1));
  EXPECT_EQ(tuning.find(near), numbered(2));
  MatMulShape asked = base;
  asked.n = 780;
  asked.m = 65;  // The class of 100.
  EXPECT_EQ(tuning.find(asked), numbered(1));
  asked.n = 990;
  EXPECT_EQ(tuning.find(asked), numbered(2));
  tuning.set(base, numbered(3));
  EXPECT_EQ(tuning.size(), 2u);
  EXPECT_EQ(tuning.find(base), numbered(3));
}

// The default of one shape is not that of another: they differ by where b lies.
TEST(MatMulTuning, AKeptDefaultIsEachShapesOwn) {
  MatMulTuning tuning;
  const MatMulShape base = {.packed = false, .m = 8, .n = 3072, .k = 1024};
  tuning.set(base, numbered(1));
  MatMulShape near = base;
  near.n = 2100;
  tuning.set(near, std::nullopt);
  EXPECT_EQ(tuning.size(), 2u);
  EXPECT_TRUE(tuning.valid(Simd::kAvx2));
  EXPECT_EQ(tuning.find(base), numbered(1));
  EXPECT_FALSE(tuning.find(near));
  near.n = 2200;
  EXPECT_FALSE(tuning.find(near));
  // Of the same powers of two, but larger than caches.
  MatMulShape large = base;
  large.n = 4000;
  large.k = 2000;
  tuning.set({.packed = false, .m = 8, .n = 2100, .k = 1100}, numbered(2));
  EXPECT_FALSE(tuning.find(large));
}

TEST(MatMulTuning, OtherClassesHaveNoChoice) {
  MatMulTuning tuning;
  const MatMulShape base = {.threads = 2, .m = 100, .n = 768, .k = 3072};
  tuning.set(base, numbered(1));
  const auto found = [&](auto change) {
    MatMulShape shape = base;
    change(shape);
    return tuning.find(shape).has_value();
  };
  EXPECT_TRUE(found([](MatMulShape&) {}));
  EXPECT_FALSE(found([](MatMulShape& s) { s.b_type = DType::kBF16; }));
  EXPECT_FALSE(found([](MatMulShape& s) { s.a_type = DType::kBF16; }));
  EXPECT_FALSE(found([](MatMulShape& s) { s.packed = false; }));
  EXPECT_FALSE(found([](MatMulShape& s) { s.transpose_a = true; }));
  EXPECT_FALSE(found([](MatMulShape& s) { s.transpose_b = true; }));
  EXPECT_FALSE(found([](MatMulShape& s) { s.threads = 1; }));
  EXPECT_FALSE(found([](MatMulShape& s) { s.m = 8; }));
  EXPECT_FALSE(found([](MatMulShape& s) { s.n = 1024; }));
  EXPECT_FALSE(found([](MatMulShape& s) { s.k = 1; }));
}

}  // namespace
}  // namespace volta::cpu
