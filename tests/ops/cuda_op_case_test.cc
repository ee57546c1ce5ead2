// The op cases on a GPU, in f32, bf16 and f16: the value against the f64 reference; and the same
// bits in a second run, for rows alone or together, in the memory of an input, and at odd
// addresses. Gradients are values of other ops. Skipped where no GPU can be used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ops/op_case.h"
#include "ops/rules.h"
#include "ops/runner.h"

namespace volta::op_test {
namespace {

// The number of a case, and the type of its activations.
struct GpuCase {
  std::size_t index = 0;
  DType dtype = DType::kF32;
};

// all_cases() has the cases in bf16, too; those in f16 are made from the f32 ones.
std::vector<GpuCase> gpu_cases() {
  std::vector<GpuCase> cases;
  for (std::size_t i = 0; i < all_cases().size(); ++i) {
    cases.push_back({i, DType::kF32});
    if (all_cases()[i].sixteen_bits) continue;
    if (in_sixteen_bits(all_cases()[i], DType::kF16)) cases.push_back({i, DType::kF16});
  }
  return cases;
}

class CudaOpCases : public ::testing::TestWithParam<GpuCase> {
 protected:
  void SetUp() override {
    if (gpu() == nullptr) GTEST_SKIP() << "no GPU can be used here";
    const OpCase& f32_case = all_cases()[GetParam().index];
    case_ =
        GetParam().dtype == DType::kF32 ? f32_case : *in_sixteen_bits(f32_case, GetParam().dtype);
    inputs_ = make_inputs(*case_);
    if (!supported(*gpu(), case_->op, inputs_)) {
      // The only operands without a kernel are weights in a CPU's panels.
      ASSERT_TRUE(std::ranges::any_of(inputs_,
                                      [](const Array& input) {
                                        return input.spec.encoding.packing == Packing::kPanels;
                                      }) ||
                  std::holds_alternative<Encode>(case_->op))
          << to_string(case_->op);
      GTEST_SKIP() << "panels are a CPU's";
    }
  }
  const Op& op() const { return case_->op; }

  std::optional<OpCase> case_;
  std::vector<Array> inputs_;
};

void expect_same_bits(const std::vector<Tensor>& got, const std::vector<Tensor>& expected,
                      const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::ranges::equal(bytes_of(got[i]), bytes_of(expected[i])))
        << what << ": result " << i << " has other bits";
  }
}

TEST_P(CudaOpCases, Value) {
  const std::vector<Array> expected = reference_results(op(), inputs_);
  const OpRun run = run_op_on(*gpu(), op(), inputs_);
  ASSERT_TRUE(run.status) << run.status.error().message();
  ASSERT_EQ(run.results.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expect_close(run.results[i], expected[i], "result " + std::to_string(i));
  }
}

TEST_P(CudaOpCases, EveryRunHasTheSameBits) {
  const OpRun first = run_op_on(*gpu(), op(), inputs_);
  ASSERT_TRUE(first.status) << first.status.error().message();
  expect_same_bits(run_op_on(*gpu(), op(), inputs_).results, first.results, "a second run");
}

TEST_P(CudaOpCases, AddressesDoNotChangeBits) {
  const OpRun aligned = run_op_on(*gpu(), op(), inputs_);
  ASSERT_TRUE(aligned.status) << aligned.status.error().message();
  const OpRun shifted = run_op_on(*gpu(), op(), inputs_, {.shift = true});
  ASSERT_TRUE(shifted.status) << shifted.status.error().message();
  expect_same_bits(shifted.results, aligned.results, "shifted");
}

TEST_P(CudaOpCases, InPlaceGivesTheSameBits) {
  const OpRun own = run_op_on(*gpu(), op(), inputs_);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!may_alias(op(), i) || inputs_[i].spec != own.outputs.front().spec()) continue;
    const OpRun lent = run_op_on(*gpu(), op(), inputs_, {.lend = static_cast<int>(i)});
    expect_same_bits(lent.outputs, own.outputs, "in place of " + std::to_string(i));
  }
}

// Rows [begin, end) of the first axis.
Array some_rows(const Array& array, std::int64_t begin, std::int64_t end) {
  TensorSpec spec = array.spec;
  spec.shape.set(0, end - begin);
  Array part(spec);
  const std::int64_t size = array.size() / array.spec.shape[0];
  for (std::int64_t i = 0; i < part.size(); ++i) part[i] = array[begin * size + i];
  return part;
}

TEST_P(CudaOpCases, RowsDoNotDependOnTheirNeighbours) {
  if (case_->rows.empty()) return;
  const std::int64_t rows = inputs_[case_->rows.front()].spec.shape[0];
  const OpRun whole = run_op_on(*gpu(), op(), inputs_);
  for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 1}, {rows - 1, rows}, {rows / 3, rows / 3 + (rows + 1) / 2}}) {
    std::vector<Array> part = inputs_;
    for (const std::size_t i : case_->rows) part[i] = some_rows(part[i], begin, end);
    const OpRun run = run_op_on(*gpu(), op(), part);
    for (std::size_t i = 0; i < whole.results.size(); ++i) {
      const auto all = bytes_of(whole.results[i]);
      const std::size_t row = all.size() / static_cast<std::size_t>(rows);
      const auto wanted = all.subspan(static_cast<std::size_t>(begin) * row,
                                      static_cast<std::size_t>(end - begin) * row);
      ASSERT_TRUE(std::ranges::equal(bytes_of(run.results[i]), wanted))
          << "rows [" << begin << ", " << end << ") of result " << i;
    }
  }
}

std::string gpu_case_name(const ::testing::TestParamInfo<GpuCase>& info) {
  const std::string name = full_name(all_cases()[info.param.index]);
  return info.param.dtype == DType::kF16 ? name + "_f16" : name;
}

INSTANTIATE_TEST_SUITE_P(All, CudaOpCases, ::testing::ValuesIn(gpu_cases()), gpu_case_name);

}  // namespace
}  // namespace volta::op_test
