// The real measuring function: every kind of operand, the same bits whatever the parameters, and
// sizes that cannot be.
#include "tuner/matmul_measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tuner/search.h"

namespace volta::tuner {
namespace {

using cpu::MatMulParameters;
using cpu::MatMulShape;
using cpu::Simd;

std::vector<Simd> simds() {
  std::vector<Simd> all;
  for (const Simd simd : {Simd::kSse4, Simd::kAvx2, Simd::kAvx512}) {
    if (cpu::simd_available(simd)) all.push_back(simd);
  }
  return all;
}

// Every type of both operands, and every layout, of one size.
std::vector<MatMulShape> kinds() {
  std::vector<MatMulShape> all;
  for (const DType a_type : {DType::kF32, DType::kBF16}) {
    for (const DType b_type : {DType::kF32, DType::kBF16, DType::kF16}) {
      MatMulShape shape = {
          .a_type = a_type, .b_type = b_type, .threads = 2, .m = 1, .n = 200, .k = 150};
      all.push_back(shape);
      shape.packed = false;
      for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
          shape.transpose_a = transpose_a;
          shape.transpose_b = transpose_b;
          all.push_back(shape);
        }
      }
    }
  }
  return all;
}

TEST(MatMulMeasure, NoCandidateChangesABit) {
  for (const Simd simd : simds()) {
    for (MatMulShape shape : kinds()) {
      for (const std::int64_t m : {1, 5, 33}) {
        shape.m = m;
        auto measure = MatMulMeasure::create(shape, simd);
        ASSERT_TRUE(measure) << measure.error().message();
        EXPECT_EQ(measure->flops(), 2.0 * static_cast<double>(m) * 200 * 150);
        const auto grid = candidates(shape, simd, {});
        for (std::size_t i = 0; i < grid.size(); i += 1 + grid.size() / 12) {
          const auto seconds = (*measure)(grid[i].parameters);
          ASSERT_TRUE(seconds) << seconds.error().message();
          EXPECT_GT(*seconds, 0.0);
          EXPECT_LT(*seconds, 1.0);
        }
      }
    }
  }
}

TEST(MatMulMeasure, WhatTakesTooLongToBeginIsToldBefore) {
  const Simd simd = cpu::best_simd();
  const MatMulShape small = {.m = 1, .n = 512, .k = 512};
  EXPECT_EQ(MatMulMeasure::seconds_to_begin(small, simd), 0.0);
  EXPECT_TRUE(MatMulMeasure::create(small, simd, 1e-6));
  EXPECT_FALSE(MatMulMeasure::seconds_to_begin({.m = 1, .n = 0, .k = 1}, simd));
  // Whichever size is the large one: 64 MiB of b.
  for (const MatMulShape& large : {MatMulShape{.m = 1, .n = kMostDim, .k = 1},
                                   MatMulShape{.packed = false, .m = 1, .n = 1, .k = kMostDim}}) {
    const auto seconds = MatMulMeasure::seconds_to_begin(large, simd);
    ASSERT_TRUE(seconds) << seconds.error().message();
    EXPECT_GT(*seconds, 1e-3);
    EXPECT_LT(*seconds, 60.0);
    const auto refused = MatMulMeasure::create(large, simd, 1e-3);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message(), testing::HasSubstr("the budget of 0.001 s"));
  }
}

TEST(MatMulMeasure, EndsWhileItBeginsWhenItIsTold) {
  const Simd simd = cpu::best_simd();
  // 16 Mi elements of b, and of a transposed a.
  for (const MatMulShape& shape :
       {MatMulShape{.m = 1, .n = 8192, .k = 2048},
        MatMulShape{.b_type = DType::kBF16, .m = 1, .n = 2040, .k = 8190},
        MatMulShape{.packed = false, .m = 1, .n = 8192, .k = 2048},
        MatMulShape{.packed = false, .transpose_a = true, .m = 700, .n = 8, .k = 24'000}}) {
    int asked = 0;
    ASSERT_TRUE(MatMulMeasure::create(shape, simd, 1e9, [&] { return ++asked > 0; }));
    EXPECT_GE(asked, 16);
    for (const int last : {1, 2, asked / 2, asked - 1, asked}) {
      int left = last;
      const auto ended = MatMulMeasure::create(shape, simd, 1e9, [&] { return --left > 0; });
      ASSERT_FALSE(ended);
      EXPECT_EQ(ended.error().code(), ErrorCode::kInterrupted);
      EXPECT_EQ(left, 0);  // At once.
    }
  }
}

TEST(MatMulMeasure, RefusesWhatCannotBe) {
  const auto code_of = [](const MatMulShape& shape) {
    const auto made = MatMulMeasure::create(shape, Simd::kSse4);
    EXPECT_FALSE(made);
    return made ? ErrorCode::kInternal : made.error().code();
  };
  EXPECT_EQ(code_of({.m = 0, .n = 1, .k = 1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.m = 1, .n = -1, .k = 1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.m = 1, .n = 1, .k = kMostDim + 1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.b_type = DType::kI8, .m = 1, .n = 1, .k = 1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.a_type = DType::kI8, .m = 1, .n = 1, .k = 1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.transpose_a = true, .m = 1, .n = 1, .k = 1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.transpose_b = true, .m = 1, .n = 1, .k = 1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.m = 1, .n = kMostDim, .k = kMostDim}), ErrorCode::kOutOfMemory);
  EXPECT_EQ(code_of({.threads = -1, .m = 1, .n = 1, .k = 1}), ErrorCode::kInvalidArgument);
  for (const Simd simd : {Simd::kAvx2, Simd::kAvx512}) {
    if (cpu::simd_available(simd)) continue;
    const auto made = MatMulMeasure::create({.m = 1, .n = 1, .k = 1}, simd);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code(), ErrorCode::kUnsupported);
  }
  auto measure = MatMulMeasure::create({.m = 1, .n = 1, .k = 1}, Simd::kSse4);
  ASSERT_TRUE(measure);
  const auto invalid = (*measure)(MatMulParameters{});
  ASSERT_FALSE(invalid);
  EXPECT_EQ(invalid.error().code(), ErrorCode::kInvalidArgument);
}

TEST(MatMulMeasure, LargeProductsAreMeasuredAsSmallerOnes) {
  EXPECT_EQ(measured_shape({.m = 100'000, .n = 7, .k = 9}),
            (MatMulShape{.m = 768, .n = 7, .k = 9}));
  EXPECT_EQ(cpu::row_class(measured_shape({.m = 100'000}).m), cpu::row_class(100'000));
  EXPECT_EQ(measured_shape({.m = 512, .n = 50257, .k = 768}),
            (MatMulShape{.m = 512, .n = 2048, .k = 768}));
  EXPECT_EQ(measured_shape({.m = 1, .n = 50257, .k = 768}).n, 50257);
}

// All of it at once, in a fraction of a second.
TEST(MatMulMeasure, ASearchOnThisMachineEnds) {
  const MatMulShape shape = {.m = 16, .n = 128, .k = 64};
  const Simd simd = cpu::best_simd();
  auto measure = MatMulMeasure::create(shape, simd);
  ASSERT_TRUE(measure);
  const auto grid = candidates(shape, simd, cpu_signature().caches);
  const MatMulParameters fallback = cpu::default_parameters(simd, shape);
  const auto found = search(grid, fallback, *measure, {.budget_seconds = 0.2},
                            [](const SearchProgress&) { return true; });
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_TRUE(cpu::valid_parameters(found->chosen, simd));
  EXPECT_EQ(found->default_kept, found->chosen == fallback);
  EXPECT_GT(found->before.seconds, 0.0);
}

}  // namespace
}  // namespace volta::tuner
