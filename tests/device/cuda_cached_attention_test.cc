// CachedAttention on a GPU: a row has the same bits alone, where each of its pages is a unit of
// work, and among many rows, where a tile of queries goes over all pages. Skipped where no GPU can
// be used.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "device/gpu_fixture.h"
#include "device/helpers.h"
#include "device/tensor_ops.h"
#include "ops/op.h"

namespace volta {
namespace {

struct Case {
  DType dtype;
  std::int32_t heads, kv_heads, head_dim, window;
  float softcap;
};

class GpuCachedAttention : public test::GpuTest {
 protected:
  Tensor numbers(const Shape& shape, const std::vector<std::int32_t>& values) {
    return test::ints(shape, values, gpu_->memory());
  }
  // The bytes of the result.
  std::vector<std::byte> attend(const CachedAttention& op, const std::vector<Tensor>& inputs) {
    const auto results = tensor_ops::apply(*gpu_, op, inputs);
    if (!results) {
      ADD_FAILURE() << results.error().message();
      return {};
    }
    const Tensor host = *results->front().clone_to(host_memory());
    const auto bytes = *host.host_bytes();
    return {bytes.begin(), bytes.end()};
  }

  std::mt19937 random_{5};
};

TEST_F(GpuCachedAttention, RowsAloneAndTogetherHaveTheSameBits) {
  constexpr std::int64_t kFirst = 130, kRows = 90, kBlocks = 4;  // Of one sequence.
  for (const Case& c :
       {Case{DType::kBF16, 4, 2, 64, 0, 0.0f}, Case{DType::kF16, 3, 1, 64, 100, 0.0f},
        Case{DType::kBF16, 2, 2, 128, 0, 0.0f}, Case{DType::kF16, 8, 1, 128, 70, 0.75f}}) {
    SCOPED_TRACE(std::string(dtype_name(c.dtype)) + " heads of " + std::to_string(c.head_dim));
    AttentionShape shape;
    shape.heads = c.heads;
    shape.kv_heads = c.kv_heads;
    shape.head_dim = c.head_dim;
    shape.window = c.window;
    shape.scale = 0.1f;
    shape.softcap = c.softcap;
    const CachedAttention op{shape};
    const std::int64_t width = std::int64_t{c.heads} * c.head_dim;
    const Tensor q = random_normal(Shape(kRows, width), c.dtype, random_);
    const Tensor keys =
        random_normal(key_cache_shape(kBlocks, c.kv_heads, c.head_dim), c.dtype, random_);
    const Tensor values =
        random_normal(value_cache_shape(kBlocks, c.kv_heads, c.head_dim), c.dtype, random_);
    const Tensor table = numbers(Shape(1, kBlocks), {2, 0, 3, 1});
    std::vector<std::int32_t> positions;
    for (std::int64_t row = 0; row < kRows; ++row) {
      positions.push_back(static_cast<std::int32_t>(kFirst + row));
    }
    const std::vector<std::int32_t> sequences(positions.size(), 0);
    const auto together =
        attend(op, {q, keys, values, numbers(Shape(kRows), positions),
                    numbers(Shape(kRows), sequences), numbers(Shape(1), {kRows}), table});
    ASSERT_FALSE(together.empty());
    const std::size_t bytes = together.size() / positions.size();
    for (const std::int64_t row :
         {std::int64_t{0}, std::int64_t{61}, std::int64_t{62}, kRows - 1}) {
      const auto at = static_cast<std::size_t>(row);
      const auto alone = attend(op, {*tensor_ops::slice(*gpu_, q, 0, row, 1), keys, values,
                                     numbers(Shape(1), {positions[at]}), numbers(Shape(1), {0}),
                                     numbers(Shape(1), {1}), table});
      ASSERT_EQ(alone.size(), bytes);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                             together.begin() + static_cast<std::ptrdiff_t>(at * bytes)))
          << "row " << row;
    }
  }
}

}  // namespace
}  // namespace volta
