// Matrix products on a GPU at 128, 256 and 512, the parity tests that docs/governance/tiers.md
// requires: cubes, and sizes that differ from them by one, in f32, bf16 and f16, against the f64
// reference. Skipped where no GPU can be used.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/op_case.h"
#include "ops/runner.h"

namespace volta::op_test {
namespace {

class CudaMatMulParity : public ::testing::TestWithParam<std::tuple<std::int64_t, DType>> {
 protected:
  void SetUp() override {
    if (gpu() == nullptr) GTEST_SKIP() << "no GPU can be used here";
  }
};

void expect_right(const MatMul& op, std::int64_t m, std::int64_t k, std::int64_t n) {
  SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n) +
               (op.transpose_a ? " ta" : "") + (op.transpose_b ? " tb" : ""));
  const OpCase c = OpCase("parity", op)
                       .in({op.out, op.transpose_a ? Shape(k, m) : Shape(m, k)})
                       .in({op.out, op.transpose_b ? Shape(n, k) : Shape(k, n)});
  const std::vector<Array> inputs = make_inputs(c);
  const std::vector<Array> expected = reference_results(op, inputs);
  const OpRun run = run_op_on(*gpu(), op, inputs);
  ASSERT_TRUE(run.status) << run.status.error().message();
  ASSERT_EQ(run.results.size(), 1u);
  expect_close(run.results[0], expected[0], "the product");
}

TEST_P(CudaMatMulParity, CubeInEveryLayout) {
  const auto [size, type] = GetParam();
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      if (size == 512 && ta != tb) continue;  // The reference is slow.
      expect_right({.transpose_a = ta, .transpose_b = tb, .out = type}, size, size, size);
    }
  }
}

TEST_P(CudaMatMulParity, MisalignedSizes) {
  const auto [size, type] = GetParam();
  expect_right({.out = type}, size - 1, size + 1, 67);
  expect_right({.transpose_b = true, .out = type}, 65, size - 1, size + 1);
  expect_right({.transpose_a = true, .out = type}, size + 1, 65, size - 1);
}

INSTANTIATE_TEST_SUITE_P(Cubes, CudaMatMulParity,
                         ::testing::Combine(::testing::Values(128, 256, 512),
                                            ::testing::Values(DType::kF32, DType::kBF16,
                                                              DType::kF16)),
                         [](const auto& tested) {
                           return std::to_string(std::get<0>(tested.param)) + "_" +
                                  std::string(dtype_name(std::get<1>(tested.param)));
                         });

}  // namespace
}  // namespace volta::op_test
