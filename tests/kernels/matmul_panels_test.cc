// MatMul with a prepared weight and with tuned parameters: every tile of every instruction set, any
// blocks, each kind of panel. None of it may change a bit. And the processor's own product of bf16,
// whose sums round differently: right, and the same however a product is cut.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "kernels/cpu/matmul_tile.h"
#include "matmul_fixture.h"

namespace volta::test {
namespace {

class MatMulPanels : public testing::TestWithParam<cpu::Simd> {
 protected:
  ThreadPool pool_ = make_pool(2);
};
INSTANTIATE_TEST_SUITE_P(EverySimd, MatMulPanels, testing::ValuesIn(available_simd()),
                         [](const auto& simd) { return simd_label(simd.param); });

cpu::MatMulTuning tuned(const MatMulCase& c, const MatMulData& data, int threads,
                        const cpu::MatMulParameters& parameters) {
  const bool packed = !data.packed.empty();
  cpu::MatMulTuning tuning;
  tuning.set({.a_type = c.a_type,
              .b_type = c.b_type,
              .packed = packed,
              .transpose_a = c.op.transpose_a,
              .transpose_b = c.op.transpose_b && !packed,
              .threads = threads,
              .m = c.m,
              .n = c.n,
              .k = c.k},
             parameters);
  return tuning;
}

/// Any that are valid.
cpu::MatMulParameters random_parameters(cpu::Simd simd) {
  const auto tiles = cpu::tile_shapes(simd);
  const auto panel = static_cast<std::int32_t>(cpu::panel_width(simd));
  const bool next_block = *rc::gen::arbitrary<bool>();
  return {.k_block = 8 * *rc::gen::inRange(1, 70),
          .m_block = *rc::gen::inRange(1, 60),
          .n_block = panel * *rc::gen::inRange(1, 20),
          .tile = tiles[*rc::gen::inRange<std::size_t>(0, tiles.size())],
          .prefetch = next_block ? cpu::Prefetch::kNextBlock : cpu::Prefetch::kAhead,
          .prefetch_bytes = next_block ? 0 : *rc::gen::element(0, 64, 4096)};
}

/// Sizes and layouts of any kind.
MatMulCase random_case() {
  MatMulCase c;
  c.m = *rc::gen::inRange<std::int64_t>(1, 50);
  c.n = *rc::gen::inRange<std::int64_t>(1, 200);
  c.k = *rc::gen::element<std::int64_t>(1, 3, 16, 31, 100, 385, 512);
  c.op.transpose_a = *rc::gen::arbitrary<bool>();
  c.op.transpose_b = *rc::gen::arbitrary<bool>();
  return c;
}

TEST_P(MatMulPanels, NoTileChangesABit) {
  for (const DType b_type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const cpu::TileShape& tile : cpu::tile_shapes(GetParam())) {
      // Whole tiles, a remainder of rows and one of columns.
      MatMulCase c{2 * tile.rows + 1, 70, 2 * tile.columns + 5};
      c.b_type = b_type;
      c.op.transpose_b = true;
      MatMulData data(c);
      const std::vector<float> expected = chained(c, data, GetParam());
      data.pack(c, GetParam(), pool_);
      const cpu::MatMulParameters parameters{
          .k_block = 32, .m_block = tile.rows, .n_block = 64, .tile = tile, .prefetch_bytes = 0};
      ASSERT_TRUE(cpu::valid_parameters(parameters, GetParam()));
      const cpu::MatMulTuning tuning = tuned(c, data, pool_.threads(), parameters);
      EXPECT_TRUE(same_bits(run_matmul(c, data, GetParam(), pool_, &tuning), expected))
          << c.name() << " with tiles of " << tile.rows << "x" << tile.columns;
    }
  }
}

// With many rows, panels of bf16 are converted to f32 once; an odd K ends in half a pair.
TEST_P(MatMulPanels, WideningPanelsChangesNoBit) {
  const std::int64_t many = cpu::has_avx512(GetParam()) ? 256 : 64;
  for (const std::int64_t m : {many - 1, many, many + 6, many + 67}) {
    for (const std::int64_t k : {1, 70, 531}) {
      MatMulCase c{m, k, 75};
      c.b_type = DType::kBF16;
      c.op.transpose_b = true;
      MatMulData data(c);
      const std::vector<float> expected = chained(c, data, GetParam());
      data.pack(c, GetParam(), pool_);
      EXPECT_EQ(cpu::widens_panels(c.a_type, c.b_type, m, GetParam()), m >= many);
      EXPECT_TRUE(same_bits(run_matmul(c, data, GetParam(), pool_), expected)) << c.name();
    }
  }
}

// A plain b whose next block is prefetched: slices that are whole, ragged, narrower than a tile's
// share of one, and the last.
TEST_P(MatMulPanels, PrefetchingTheNextBlockChangesNoBit) {
  const std::int32_t panel = static_cast<std::int32_t>(cpu::panel_width(GetParam()));
  for (const cpu::TileShape& tile : cpu::tile_shapes(GetParam())) {
    for (const std::int32_t n_block : {panel, 8 * tile.columns / panel * panel + panel}) {
      MatMulCase c{2 * tile.rows + 1, 70, 2 * n_block + tile.columns + 5};
      MatMulData data(c);
      const std::vector<float> expected = chained(c, data, GetParam());
      const cpu::MatMulParameters parameters{.k_block = 16,
                                             .m_block = tile.rows,
                                             .n_block = n_block,
                                             .tile = tile,
                                             .prefetch = cpu::Prefetch::kNextBlock};
      ASSERT_TRUE(cpu::valid_parameters(parameters, GetParam()));
      const cpu::MatMulTuning tuning = tuned(c, data, pool_.threads(), parameters);
      const cpu::MatMulProblem problem{.m = c.m, .n = c.n, .k = c.k};
      const auto plan = cpu::plan_matmul(c.op, problem, GetParam(), pool_.threads(), &tuning);
      // AVX-512 leaves tiles of up to four rows to the hardware, the others those of one.
      EXPECT_EQ(plan.prefetch_next_block, tile.rows > (cpu::has_avx512(GetParam()) ? 4 : 1));
      EXPECT_TRUE(same_bits(run_matmul(c, data, GetParam(), pool_, &tuning), expected))
          << c.name() << " with tiles of " << tile.rows << "x" << tile.columns;
    }
  }
}

// Gradients: a packed, its kernels at most a panel wide whatever the tile.
TEST_P(MatMulPanels, NoTileChangesABitOfATransposedA) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const cpu::TileShape& tile : cpu::tile_shapes(GetParam())) {
      MatMulCase c{2 * tile.rows + 1, 70, 2 * tile.columns + 5};
      c.a_type = c.b_type = type;
      c.op.transpose_a = true;
      MatMulData data(c);
      const std::vector<float> expected = run_matmul(c, data, GetParam(), pool_);
      const cpu::MatMulTuning tuning =
          tuned(c, data, pool_.threads(),
                {.k_block = 32, .m_block = tile.rows, .n_block = 64, .tile = tile});
      EXPECT_TRUE(same_bits(run_matmul(c, data, GetParam(), pool_, &tuning), expected))
          << c.name() << " with tiles of " << tile.rows << "x" << tile.columns;
    }
  }
}

TEST_P(MatMulPanels, NoParametersChangeABit) {
  EXPECT_TRUE(rc::check([&] {
    MatMulCase c = random_case();
    c.a_type = *rc::gen::element(DType::kF32, DType::kF32, DType::kBF16, DType::kF16);
    c.b_type = c.a_type == DType::kBF16 ? *rc::gen::element(DType::kF32, DType::kF16)
                                        : *rc::gen::element(DType::kF32, DType::kBF16, DType::kF16);
    const cpu::MatMulParameters parameters = random_parameters(GetParam());
    RC_ASSERT(cpu::valid_parameters(parameters, GetParam()));
    MatMulData data(c);
    const std::vector<float> expected = chained(c, data, GetParam());
    if (!c.op.transpose_a && *rc::gen::arbitrary<bool>()) data.pack(c, GetParam(), pool_);
    const cpu::MatMulTuning tuning = tuned(c, data, pool_.threads(), parameters);
    RC_LOG() << c.name();
    RC_ASSERT(same_bits(run_matmul(c, data, GetParam(), pool_, &tuning), expected));
  }));
}

// Where the processor multiplies pairs the chain is another one, and as fixed.
TEST_P(MatMulPanels, NoParametersChangeABitOfProductsOfBF16) {
  EXPECT_TRUE(rc::check([&] {
    MatMulCase c = random_case();
    c.a_type = c.b_type = DType::kBF16;
    const cpu::MatMulParameters parameters = random_parameters(GetParam());
    MatMulData data(c);
    const std::vector<float> expected = run_matmul(c, data, GetParam(), pool_);
    expect_within(expected, matmul_bounds(c, data));
    if (!c.op.transpose_a && *rc::gen::arbitrary<bool>()) data.pack(c, GetParam(), pool_);
    const cpu::MatMulTuning tuning = tuned(c, data, pool_.threads(), parameters);
    RC_LOG() << c.name();
    RC_ASSERT(same_bits(run_matmul(c, data, GetParam(), pool_, &tuning), expected));
  }));
}

TEST_P(MatMulPanels, AnEpilogueComesOnceHoweverKIsCut) {
  MatMul op;
  op.transpose_b = op.has_bias = op.has_residual = true;
  op.activation = Activation::kGelu;
  const MatMulCase c{40, 200, 150, op};
  MatMulData data(c);
  data.pack(c, GetParam(), pool_);
  const std::vector<float> expected = run_matmul(c, data, GetParam(), pool_);
  for (const std::int32_t k_block : {8, 64, 200}) {
    const cpu::MatMulTuning tuning =
        tuned(c, data, pool_.threads(),
              {.k_block = k_block, .m_block = 16, .n_block = 64, .tile = {4, 16}});
    EXPECT_TRUE(same_bits(run_matmul(c, data, GetParam(), pool_, &tuning), expected)) << k_block;
  }
}

/// Both operands bf16, and b prepared.
MatMulCase bf16_case(std::int64_t m, std::int64_t k, std::int64_t n) {
  MatMulCase c{m, k, n};
  c.op.transpose_b = true;
  c.a_type = c.b_type = DType::kBF16;
  return c;
}

TEST_P(MatMulPanels, ProductsOfBF16AreRight) {
  for (const std::int64_t k : {1, 2, 7, 64, 385, 2048}) {
    for (const std::int64_t m : {1, 2, 5, 14, 15, 33}) {
      const MatMulCase c = bf16_case(m, k, 75);
      MatMulData data(c);
      const MatMulBounds expected = matmul_bounds(c, data);
      data.pack(c, GetParam(), pool_);
      SCOPED_TRACE(c.name());
      expect_within(run_matmul(c, data, GetParam(), pool_), expected);
    }
  }
}

TEST_P(MatMulPanels, ProductsOfBF16AreTheSameHoweverTheyAreCut) {
  for (const std::int64_t k : {64, 385, 2048}) {
    const MatMulCase c = bf16_case(33, k, 75);
    MatMulData data(c);
    data.pack(c, GetParam(), pool_);
    const std::vector<float> expected = run_matmul(c, data, GetParam(), pool_);
    for (const cpu::TileShape& tile : cpu::tile_shapes(GetParam())) {
      const cpu::MatMulTuning tuning =
          tuned(c, data, pool_.threads(),
                {.k_block = 8 * tile.rows, .m_block = 20, .n_block = 64, .tile = tile});
      EXPECT_TRUE(same_bits(run_matmul(c, data, GetParam(), pool_, &tuning), expected))
          << c.name() << " with tiles of " << tile.rows << "x" << tile.columns;
    }
    for (const std::int64_t row : {0, 32}) {
      const MatMulCase one = bf16_case(1, k, 75);
      MatMulData alone = data;
      std::vector<float> a;
      for (std::int64_t i = 0; i < k; ++i)
        a.push_back(data.a[static_cast<std::size_t>(row * k + i)]);
      alone.a = Operand(one.a_shape(), a, DType::kBF16);
      const std::vector<float> got = run_matmul(one, alone, GetParam(), pool_);
      EXPECT_TRUE(
          same_bits(got, std::span(expected).subspan(static_cast<std::size_t>(row * 75), 75)))
          << c.name() << " row " << row;
    }
  }
}

TEST_P(MatMulPanels, ProductsOfBF16AreTheSameFromEveryLayout) {
  for (const std::int64_t k : {1, 2, 63, 64, 385}) {
    const MatMulCase c = bf16_case(20, k, 75);
    MatMulData data(c);
    data.pack(c, GetParam(), pool_);
    const std::vector<float> expected = run_matmul(c, data, GetParam(), pool_);
    const auto transposed = [](const Operand& x, std::int64_t rows, std::int64_t columns) {
      std::vector<float> values;
      for (std::int64_t j = 0; j < columns; ++j) {
        for (std::int64_t i = 0; i < rows; ++i) {
          values.push_back(x[static_cast<std::size_t>(i * columns + j)]);
        }
      }
      return Operand(Shape(columns, rows), values, DType::kBF16);
    };
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        MatMulCase other = c;
        other.op.transpose_a = transpose_a;
        other.op.transpose_b = transpose_b;
        MatMulData same(other);
        same.a = transpose_a ? transposed(data.a, c.m, k) : data.a;
        same.b = transpose_b ? data.b : transposed(data.b, c.n, k);
        EXPECT_TRUE(same_bits(run_matmul(other, same, GetParam(), pool_), expected))
            << other.name();
      }
    }
  }
}

TEST_P(MatMulPanels, ProductsOfBF16KeepNaNAndInfinity) {
  const MatMulCase c = bf16_case(3, 9, 40);
  MatMulData data(c);
  std::vector<float> a(27, 1.0f), b(360, 1.0f);
  a[9] = kNaN;
  a[26] = kInfinity;
  data.a = Operand(c.a_shape(), a, DType::kBF16);
  data.b = Operand(c.b_shape(), b, DType::kBF16);
  data.pack(c, GetParam(), pool_);
  const std::vector<float> got = run_matmul(c, data, GetParam(), pool_);
  for (std::size_t j = 0; j < 40; ++j) {
    EXPECT_EQ(got[j], 9.0f);
    EXPECT_TRUE(std::isnan(got[40 + j]));
    EXPECT_EQ(got[80 + j], kInfinity);
  }
}

TEST(MatMulTiles, TheNamedKernelsAreThere) {
  for (const int rows : {4, 8, 12, 16}) {
    EXPECT_NE(cpu::f32_tiles(cpu::Simd::kAvx2)[static_cast<std::size_t>(rows)][0], nullptr) << rows;
    EXPECT_TRUE(std::ranges::count(cpu::tile_shapes(cpu::Simd::kAvx2), cpu::TileShape{rows, 8}) ==
                1);
  }
}

TEST(MatMulTiles, TablesHoldWhatIsPromised) {
  for (const cpu::Simd simd : {cpu::Simd::kSse4, cpu::Simd::kAvx2, cpu::Simd::kAvx512}) {
    for (int rows = 1; rows <= cpu::kMostRows; ++rows) {
      for (int vectors = 1; vectors <= cpu::kMostVectors; vectors *= 2) {
        const auto row = static_cast<std::size_t>(rows);
        const auto column = cpu::tile_column(vectors);
        const bool promised = cpu::has_tile(simd, rows, vectors);
        EXPECT_EQ(cpu::f32_tiles(simd)[row][column] != nullptr, promised);
        EXPECT_EQ(cpu::bf16_tiles(simd)[row][column] != nullptr, promised);
        EXPECT_EQ(cpu::f16_tiles(simd)[row][column] != nullptr, promised);
        EXPECT_EQ(cpu::packed_a_tiles(simd)[row][column] != nullptr, promised && vectors <= 2);
      }
    }
  }
}

}  // namespace
}  // namespace volta::test
