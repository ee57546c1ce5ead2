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
  const TensorSpec k = f32(key_cache_shape(2, 2, 64, 4)), v = f32(value_cache_shape(2, 2, 64, 4));
  std::vector<OpCase> all;
  all.push_back(OpCase("high", Embedding{}).in(f32({5, 3})).in(i32({4}), list({0, 5, 1, 2})));
  all.push_back(OpCase("negative", Embedding{}).in(f32({5, 3})).in(i32({4}), list({0, -1, 1, 2})));
  all.push_back(OpCase("high", EmbeddingGrad{5}).in(i32({4}), list({0, 5})).in(f32({4, 3})));
  all.push_back(OpCase("high", GatherRows{}).in(f32({2, 3, 4})).in(i32({2}), list({1, 3})));
  all.push_back(
      OpCase("high", Rope{2, 4}).in(f32({3, 8})).in(i32({3}), list({0, 9, 1})).in(f32({9, 4})));
  all.push_back(OpCase("high", CrossEntropy{}).in(f32({3, 5})).in(i32({3}), list({0, 5, 1})));
  all.push_back(OpCase("high", CrossEntropyGrad{})
                    .in(f32({3, 5}))
                    .in(i32({3}), list({0, 5, 1}))
                    .in(f32({3}))
                    .in(f32({3})));
  all.push_back(OpCase("past_capacity", KvAppend{shape})
                    .in(f32({2, 3, 8}))
                    .in(f32({2, 3, 8}))
                    .in(k)
                    .in(v)
                    .in(i32({2}), list({0, 62}))
                    .in(i32({2}), list({3})));
  all.push_back(OpCase("past_capacity", CachedAttention{shape})
                    .in(f32({2, 3, 8}))
                    .in(k)
                    .in(v)
                    .in(i32({2}), list({0, 62}))
                    .in(i32({2}), list({3})));
  all.push_back(OpCase("too_many_rows", CachedAttention{shape})
                    .in(f32({2, 3, 8}))
                    .in(k)
                    .in(v)
                    .in(i32({2}), list({0}))
                    .in(i32({2}), list({3, 4})));
  return all;
}

TEST(BadIndex, IsReportedAndHarmless) {
  for (const OpCase& c : bad_cases()) {
    SCOPED_TRACE(full_name(c));
    for (const cpu::Simd simd : available_simd()) {
      const OpRun run = run_op(device(simd, 2), c.op, make_inputs(c));
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
