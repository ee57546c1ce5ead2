// Index values out of range: the device says so and names the op, and the outputs are defined.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/op_case.h"
#include "ops/runner.h"

namespace volta::op_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsNan;
using ::testing::Not;

std::vector<OpCase> bad_cases() {
  const AttentionShape shape = {.heads = 2, .kv_heads = 2, .head_dim = 4};
  std::vector<OpCase> all;
  all.push_back(OpCase("high", Embedding{}).in(f32({5, 3})).in(i32({4}), list({0, 5, 1, 2})));
  all.push_back(OpCase("negative", Embedding{}).in(f32({5, 3})).in(i32({4}), list({0, -1, 1, 2})));
  all.push_back(OpCase("high", EmbeddingGrad{5}).in(i32({4}), list({0, 5})).in(f32({4, 3})));
  all.push_back(
      OpCase("high", Rope{2, 4}).in(f32({3, 8})).in(i32({3}), list({0, 9, 1})).in(f32({9, 4})));
  all.push_back(OpCase("high", CrossEntropy{}).in(f32({3, 5})).in(i32({3}), list({0, 5, 1})));
  all.push_back(OpCase("high", CrossEntropyGrad{})
                    .in(f32({3, 5}))
                    .in(i32({3}), list({0, 5, 1}))
                    .in(f32({3}))
                    .in(f32({3})));
  // Three tokens of two sequences, whose tables have a page each, of four.
  struct Bad {
    const char* name;
    std::vector<double> positions, sequences, rows, table;
  };
  const std::vector<Bad> bad = {{"past_table", {0, 1, 64}, {0, 0, 1}, {3}, {1, 2}},
                                {"before_table", {0, 1, -1}, {0, 0, 1}, {3}, {1, 2}},
                                {"no_sequence", {0, 1, 0}, {0, 0, 2}, {3}, {1, 2}},
                                {"negative_sequence", {0, 1, 0}, {0, 0, -1}, {3}, {1, 2}},
                                {"no_page", {0, 1, 0}, {0, 0, 1}, {3}, {1, -1}},
                                {"page_past_pool", {0, 1, 0}, {0, 0, 1}, {3}, {1, 4}},
                                {"too_many_rows", {0, 1, 0}, {0, 0, 1}, {4}, {1, 2}},
                                {"fewer_than_no_rows", {0, 1, 0}, {0, 0, 1}, {-1}, {1, 2}}};
  for (const Bad& each : bad) {
    const auto paged = [&](OpCase c) {
      return std::move(c)
          .in(f32(key_cache_shape(4, 2, 4)))
          .in(f32(value_cache_shape(4, 2, 4)))
          .in(i32({3}), list(each.positions))
          .in(i32({3}), list(each.sequences))
          .in(i32({1}), list(each.rows))
          .in(i32({2, 1}), list(each.table));
    };
    all.push_back(paged(OpCase(each.name, KvAppend{shape}).in(f32({3, 8})).in(f32({3, 8}))));
    all.push_back(paged(OpCase(each.name, CachedAttention{shape}).in(f32({3, 8}))));
  }
  all.push_back(OpCase("no_sequence", Sample{})
                    .in(f32({2, 5}))
                    .in(f32({2, kSampleParams}), list({0, 0, 1, 0, 1, 0, 0}))
                    .in(i64({2, 2}), list({1}))
                    .in(i32({3, 2, 5}), list({0}))
                    .in(i32({2}), list({0, 3})));
  return all;
}

TEST(BadIndex, IsReportedAndHarmless) {
  for (const OpCase& c : bad_cases()) {
    SCOPED_TRACE(full_name(c));
    std::vector<Device*> devices;
    for (const cpu::Simd simd : available_simd()) devices.push_back(&device(simd, 2));
    if (gpu() != nullptr) devices.push_back(gpu());
    for (Device* const each : devices) {
      SCOPED_TRACE(each->info().id);
      const OpRun run = run_op_on(*each, c.op, make_inputs(c));
      ASSERT_FALSE(run.status);
      EXPECT_EQ(run.status.error().code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(run.status.error().message(), HasSubstr(std::string(op_name(c.op))));
      for (const Tensor& result : run.results) {
        EXPECT_THAT(to_doubles(result), Not(Contains(IsNan())));
      }
    }
  }
}

}  // namespace
}  // namespace volta::op_test
