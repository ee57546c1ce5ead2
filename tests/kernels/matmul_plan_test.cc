// How a product is cut up: bounded workspace, parts that cover everything once, layouts that belong
// to the weight, and small work left to the caller.
#include "kernels/cpu/matmul_plan.h"

#include <gtest/gtest.h>

#include "attention_fixture.h"
#include "kernels/cpu/matmul_parameters.h"

namespace volta::test {
namespace {

cpu::MatMulPlan plan_of(std::int64_t m, std::int64_t k, std::int64_t n, int threads,
                        const MatMul& op = {}, cpu::Simd simd = cpu::Simd::kAvx512,
                        std::int64_t batch = 1, DType type = DType::kF32) {
  cpu::MatMulProblem problem;
  problem.batch = batch;
  problem.m = m;
  problem.k = k;
  problem.n = n;
  problem.a_type = problem.b_type = type;
  return cpu::plan_matmul(op, problem, simd, threads);
}

TEST(MatMulPlan, BlocksCoverKEvenly) {
  for (const cpu::Simd simd : cpu::kAllSimd) {
    for (std::int64_t k = 1; k < 5000; k = k * 5 / 4 + 1) {
      const cpu::PanelLayout layout = cpu::panel_layout(k, 384, simd);
      EXPECT_GT(layout.width, 0);
      EXPECT_GT(layout.k_block, 0);
      EXPECT_LE(layout.k_block, 384);
      const std::int64_t blocks = (k + layout.k_block - 1) / layout.k_block;
      EXPECT_LE(blocks, (k + 383) / 384 + 1) << k;
    }
  }
}

TEST(MatMulPlan, WorkspaceIsBounded) {
  constexpr std::int64_t kLimit = 8 << 20;
  MatMul transposed;
  transposed.transpose_a = transposed.transpose_b = true;
  for (const cpu::Simd simd : cpu::kAllSimd) {
    for (const int threads : {1, 2, 16, 64}) {
      for (const MatMul& op : {MatMul{}, transposed}) {
        for (const std::int64_t m : {1, 100, 4096}) {
          for (const std::int64_t n : {1, 65, 4096, 50257}) {
            const cpu::MatMulPlan plan = plan_of(m, 4096, n, threads, op, simd);
            const std::int64_t packed_b = plan.parts * plan.packed_b_floats * 4;
            EXPECT_LE(packed_b, kLimit) << m << " " << n << " " << threads;
            EXPECT_LE(plan.workspace_floats() * 4 - packed_b, threads * 32 * 1024);
          }
        }
      }
    }
  }
}

// The sums of a result of 16 bits: as many rows and columns as any part takes at a time, which are
// few of a large product.
TEST(MatMulPlan, SumsOfNarrowResultsFitTheirPart) {
  for (const cpu::Simd simd : cpu::kAllSimd) {
    for (const int threads : {1, 2, 16}) {
      for (const std::int64_t m : {1, 513, 1025, 5000}) {
        for (const bool packed : {false, true}) {
          cpu::MatMulProblem problem{.m = m, .n = 2049, .k = 768, .c_type = DType::kBF16};
          if (packed) problem.b_encoding = cpu::panel_encoding(DType::kF32, false, simd);
          const cpu::MatMulPlan plan = cpu::plan_matmul({}, problem, simd, threads);
          EXPECT_TRUE(plan.narrow());
          const std::int64_t sums =
              plan.region_floats - plan.packed_b_floats - plan.packed_a_floats;
          for (std::int64_t part = 0; part < plan.m_parts; ++part) {
            const std::int64_t rows =
                part_begin(m, plan.m_parts, part + 1) - part_begin(m, plan.m_parts, part);
            const std::int64_t blocks = plan.source == cpu::PanelSource::kPack
                                            ? 1
                                            : (rows + plan.m_block - 1) / plan.m_block;
            const std::int64_t longest = (rows + blocks - 1) / blocks;
            EXPECT_GE(sums, longest * cpu::packed_row(plan.slice_panels * plan.layout.width));
          }
          if (packed) {
            EXPECT_LE(sums * 4, 4 << 20) << m;
          }
          problem.c_type = DType::kF32;
          EXPECT_EQ(cpu::plan_matmul({}, problem, simd, threads).region_floats,
                    plan.packed_b_floats + plan.packed_a_floats);
        }
      }
    }
  }
}

TEST(MatMulPlan, DecodingNeedsNoWorkspace) {
  EXPECT_EQ(plan_of(1, 768, 3072, 1).workspace_floats(), 0);
  MatMul op;
  op.transpose_b = true;
  EXPECT_LE(plan_of(1, 768, 50257, 1, op).workspace_floats() * 4, 64 * 1024);
}

TEST(MatMulPlan, PanelsAreReadWhereTheyLie) {
  for (const cpu::Simd simd : cpu::kAllSimd) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const std::int64_t m : {1, 15, 500}) {
        cpu::MatMulProblem problem{.m = m, .n = 700, .k = 301, .b_type = dtype};
        problem.b_encoding = cpu::panel_encoding(dtype, true, simd);
        const MatMul op{.transpose_b = true};
        const cpu::MatMulPlan plan = cpu::plan_matmul(op, problem, simd, 2);
        // With many rows, bf16 is converted once for all of them.
        const bool widened = dtype == DType::kBF16 && m == 500;
        EXPECT_EQ(plan.source == cpu::PanelSource::kEncoded, !widened);
        EXPECT_EQ(plan.packed_b_floats == 0, !widened);
        EXPECT_EQ(plan.layout.k_block % problem.b_encoding.group, 0);
      }
    }
  }
}

TEST(MatMulPlan, PartsMatchTheThreads) {
  for (const cpu::Simd simd : cpu::kAllSimd) {
    for (const int threads : {1, 2, 3, 7, 64}) {
      for (const std::int64_t batch : {1, 2, 5, 100}) {
        for (const std::int64_t m : {1, 20, 768}) {
          for (const std::int64_t n : {1, 65, 1000}) {
            const cpu::MatMulPlan plan = plan_of(m, 512, n, threads, {}, simd, batch);
            EXPECT_GE(plan.parts, 1);
            EXPECT_LE(plan.parts, threads);
            EXPECT_LE(plan.parts, plan.tasks());
            EXPECT_LE(plan.m_parts, m);
            EXPECT_LE(plan.n_parts, plan.panels());
          }
        }
      }
    }
  }
}

// What a part reads is proportional to its rows plus its columns, so that parts of a square are
// about square. A product of few rows is split by columns alone: every part needs all of its rows.
TEST(MatMulPlan, PartsAreAboutAsHighAsTheyAreWide) {
  for (const cpu::Simd simd : {cpu::Simd::kAvx512, cpu::Simd::kAmx}) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      for (const std::int64_t size : {512, 1024, 2048}) {
        const cpu::MatMulPlan plan = plan_of(size, size, size, 16, {}, simd, 1, type);
        EXPECT_EQ(plan.parts, 16);
        EXPECT_EQ(plan.m_parts * plan.n_parts, 16) << size;
        EXPECT_GE(plan.m_parts, 2) << size;
        EXPECT_GE(plan.n_parts, 2) << size;
      }
      for (const std::int64_t m : {1, 8, 14}) {
        EXPECT_EQ(plan_of(m, 4096, 4096, 16, {}, simd, 1, type).m_parts, 1) << m;
      }
    }
  }
  // The products of tiles of AMX are so fast that what a part reads counts the most.
  const cpu::MatMulPlan square =
      plan_of(1024, 1024, 1024, 16, {}, cpu::Simd::kAmx, 1, DType::kBF16);
  EXPECT_EQ(square.m_parts, 4);
  EXPECT_EQ(square.n_parts, 4);
}

// A split neither loses nor repeats an element, and leaves no thread without work where there is
// enough.
TEST(MatMulPlan, ThreadsGetEqualShares) {
  for (const cpu::Simd simd : cpu::kAllSimd) {
    for (const int threads : {2, 4, 8, 16, 64}) {
      for (const std::int64_t m : {768, 1024, 5000}) {
        for (const std::int64_t n : {768, 3072, 50257}) {
          const cpu::MatMulPlan plan = plan_of(m, 768, n, threads, {}, simd);
          const std::int64_t tiles = (m + plan.tile_rows - 1) / plan.tile_rows;
          const std::int64_t high = (tiles + plan.m_parts - 1) / plan.m_parts;
          const std::int64_t wide = (plan.panels() + plan.n_parts - 1) / plan.n_parts;
          const double ideal = static_cast<double>(tiles * plan.panels()) / threads;
          EXPECT_LE(static_cast<double>(high * wide), 1.35 * ideal + 1)
              << m << " x " << n << " on " << threads << ": " << plan.m_parts << " x "
              << plan.n_parts;
        }
      }
    }
  }
}

TEST(MatMulPlan, EachKindOfProductHasItsOwnChoice) {
  constexpr cpu::Simd kSimd = cpu::Simd::kAvx512;
  struct Kind {
    MatMul op;
    DType a_type = DType::kF32, b_type = DType::kF32;
    bool packed = false;
    cpu::MatMulShape shape;
  };
  constexpr DType kBF16 = DType::kBF16;
  const std::vector<Kind> kinds = {
      {.op = {}, .shape = {.packed = false}},
      {.op = {.transpose_a = true}, .shape = {.packed = false, .transpose_a = true}},
      {.op = {.transpose_b = true}, .shape = {.packed = false, .transpose_b = true}},
      {.op = {.transpose_a = true, .transpose_b = true},
       .shape = {.packed = false, .transpose_a = true, .transpose_b = true}},
      {.op = {}, .a_type = kBF16, .shape = {.a_type = kBF16, .packed = false}},
      {.op = {},
       .a_type = kBF16,
       .b_type = kBF16,
       .shape = {.a_type = kBF16, .b_type = kBF16, .packed = false}},
      {.op = {}, .packed = true, .shape = {.packed = true}},
      {.op = {}, .b_type = kBF16, .packed = true, .shape = {.b_type = kBF16, .packed = true}},
      {.op = {},
       .a_type = kBF16,
       .b_type = kBF16,
       .packed = true,
       .shape = {.a_type = kBF16, .b_type = kBF16, .packed = true}}};
  const auto problem_of = [](const Kind& kind) {
    cpu::MatMulProblem problem{
        .m = 200, .n = 300, .k = 100, .a_type = kind.a_type, .b_type = kind.b_type};
    if (kind.packed) {
      problem.b_encoding = cpu::panel_encoding(kind.b_type, kind.op.transpose_b, kSimd);
    }
    return problem;
  };
  const cpu::MatMulParameters odd{.k_block = 24, .m_block = 40, .n_block = 64, .tile = {3, 32}};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    cpu::MatMulShape shape = kinds[i].shape;
    shape.threads = 2;
    shape.m = 200;
    shape.n = 300;
    shape.k = 100;
    EXPECT_EQ(cpu::tuned_shape(kinds[i].op, problem_of(kinds[i]), 2), shape) << i;
    cpu::MatMulTuning tuning;
    tuning.set(shape, odd);
    for (std::size_t j = 0; j < kinds.size(); ++j) {
      for (const int threads : {1, 2}) {
        const auto plan =
            cpu::plan_matmul(kinds[j].op, problem_of(kinds[j]), kSimd, threads, &tuning);
        EXPECT_EQ(plan.tile_rows == 3, i == j && threads == 2) << i << " " << j;
      }
    }
  }
}

TEST(MatMulPlan, NoRowsAreOnePart) {
  const cpu::MatMulProblem none{.m = 0, .n = 512, .k = 512};
  const cpu::MatMulPlan plan = cpu::plan_matmul({}, none, cpu::Simd::kAvx512, 2);
  EXPECT_EQ(plan.m_parts, 1);
  EXPECT_GE(plan.slice_panels, 1);
}

// What no kernel looks at does not make another cut.
TEST(MatMulPlan, CutsSayWhatTheKernelsMakeOfParameters) {
  constexpr auto kAvx512 = cpu::Simd::kAvx512;
  const cpu::MatMulParameters usual{
      .k_block = 256, .m_block = 64, .n_block = 256, .tile = {8, 32}, .prefetch_bytes = 4096};
  const auto cut = [&](MatMul op, cpu::MatMulProblem problem, cpu::MatMulParameters parameters) {
    return cpu::cut_of(cpu::plan_matmul(op, problem, kAvx512, 1, parameters));
  };
  const auto changed = [&](auto change) {
    cpu::MatMulParameters parameters = usual;
    change(parameters);
    return parameters;
  };
  const auto nearer = changed([](auto& p) { p.prefetch_bytes = 64; });
  const auto shorter = changed([](auto& p) { p.m_block = 32; });
  const auto narrower = changed([](auto& p) { p.n_block = 64; });
  const cpu::MatMulProblem plain{.m = 128, .n = 4096, .k = 512};
  cpu::MatMulProblem packed = plain;
  packed.b_encoding = cpu::panel_encoding(DType::kF32, false, kAvx512);
  for (const auto& other : {nearer, shorter, narrower}) {
    EXPECT_NE(cut({}, packed, usual), cut({}, packed, other));
  }
  // Copied on the way, once for all rows: nothing is prefetched from far.
  EXPECT_EQ(cut({}, plain, usual), cut({}, plain, nearer));
  EXPECT_EQ(cut({}, plain, usual), cut({}, plain, shorter));
  EXPECT_NE(cut({}, plain, usual), cut({}, plain, narrower));
  // Read in place by one tile of rows: no slices; of at most four rows, no prefetches.
  const cpu::MatMulProblem few{.m = 8, .n = 4096, .k = 512};
  EXPECT_EQ(cut({}, few, usual), cut({}, few, narrower));
  EXPECT_NE(cut({}, few, usual), cut({}, few, nearer));
  const cpu::MatMulProblem fewer{.m = 4, .n = 4096, .k = 512};
  EXPECT_EQ(cut({}, fewer, usual), cut({}, fewer, nearer));
  // A transposed a has tiles a panel wide.
  const auto wide = changed([](auto& p) { p.tile = {4, 128}; });
  const auto panel = changed([](auto& p) { p.tile = {4, 32}; });
  EXPECT_EQ(cut({.transpose_a = true}, plain, wide), cut({.transpose_a = true}, plain, panel));
  EXPECT_NE(cut({}, packed, wide), cut({}, packed, panel));
}

TEST(MatMulPlan, PanelsLieAlikeTransposedOrNotAndOthersAreNotTuned) {
  cpu::MatMulProblem problem{.m = 200, .n = 300, .k = 100};
  EXPECT_TRUE(cpu::tuned_shape({}, problem, 1));
  problem.b_encoding = cpu::panel_encoding(DType::kF32, true, cpu::Simd::kAvx2);
  const auto transposed = cpu::tuned_shape({.transpose_b = true}, problem, 1);
  problem.b_encoding = cpu::panel_encoding(DType::kF32, false, cpu::Simd::kAvx2);
  EXPECT_EQ(transposed, cpu::tuned_shape({}, problem, 1));
  EXPECT_FALSE(transposed->transpose_b);
  problem.b_encoding.quant = Quant::kInt8;
  EXPECT_FALSE(cpu::tuned_shape({}, problem, 1));
  problem.b_encoding = {};
  problem.batch = 2;
  EXPECT_FALSE(cpu::tuned_shape({.batched = true}, problem, 1));
}

TEST(MatMulPlan, SmallWorkStaysOnTheCaller) {
  EXPECT_EQ(plan_of(1, 128, 512, 2).parts, 1);
  EXPECT_EQ(plan_of(16, 64, 64, 2).parts, 1);
  EXPECT_EQ(plan_of(768, 128, 384, 2).parts, 2);
  EXPECT_EQ(plan_of(1, 768, 3072, 2).parts, 2);
}

TEST(MatMulPlan, ProblemsOfEveryLayout) {
  const auto problem = [](const MatMul& op, const Shape& a, const Shape& b) {
    const std::vector<View> inputs = {View(nullptr, {DType::kF32, a}),
                                      View(nullptr, {DType::kBF16, b})};
    return cpu::matmul_problem(op, {inputs, {}});
  };
  const auto sizes = [](const cpu::MatMulProblem& p) {
    return std::vector<std::int64_t>{p.batch, p.m, p.k, p.n};
  };
  using Sizes = std::vector<std::int64_t>;
  MatMul op;
  EXPECT_EQ(sizes(problem(op, Shape(2, 3, 4), Shape(4, 5))), (Sizes{1, 6, 4, 5}));
  op.transpose_b = true;
  EXPECT_EQ(sizes(problem(op, Shape(2, 3, 4), Shape(5, 4))), (Sizes{1, 6, 4, 5}));
  op = {};
  op.transpose_a = true;
  EXPECT_EQ(sizes(problem(op, Shape(2, 3, 4), Shape(2, 3, 5))), (Sizes{1, 4, 6, 5}));
  op.batched = true;
  EXPECT_EQ(sizes(problem(op, Shape(7, 2, 3, 4), Shape(7, 2, 3, 5))), (Sizes{14, 4, 3, 5}));
  op.transpose_a = false;
  op.transpose_b = true;
  EXPECT_EQ(sizes(problem(op, Shape(7, 3, 4), Shape(7, 5, 4))), (Sizes{7, 3, 4, 5}));
  EXPECT_EQ(problem(op, Shape(7, 3, 4), Shape(7, 5, 4)).b_type, DType::kBF16);
}

}  // namespace
}  // namespace volta::test
