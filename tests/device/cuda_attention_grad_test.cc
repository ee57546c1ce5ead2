// AttentionGrad on a GPU with many heads, for which one thread block takes all keys of a head. The
// op cases have few heads, and there blocks of keys are summed in turns. Both have the same bits.
// Skipped where no GPU can be used.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "device/gpu_fixture.h"
#include "device/tensor_ops.h"

namespace volta {
namespace {

struct Case {
  DType dtype;
  std::int32_t heads, kv_heads, head_dim, window;
};

class GpuAttentionGrad : public test::GpuTest {
 protected:
  std::vector<Tensor> apply(const Op& op, const std::vector<Tensor>& inputs) {
    auto results = tensor_ops::apply(*gpu_, op, inputs);
    if (results) return *std::move(results);
    ADD_FAILURE() << results.error().message();
    return {};
  }
  // Row `row` of the first axis, in the GPU's memory.
  Tensor one(const Tensor& tensor, std::int64_t row) {
    return *tensor_ops::slice(*gpu_, tensor, 0, row, 1);
  }

  std::mt19937 random_{11};
};

TEST_F(GpuAttentionGrad, ASequenceAmongManyHasTheBitsOfOneAlone) {
  constexpr std::int64_t kBatch = 320, kTime = 300;  // More heads than multiprocessors.
  for (const Case& c : {Case{DType::kBF16, 1, 1, 64, 0}, Case{DType::kF16, 2, 1, 64, 90},
                        Case{DType::kBF16, 1, 1, 128, 0}}) {
    SCOPED_TRACE(std::to_string(c.heads) + " heads of " + std::to_string(c.head_dim));
    AttentionShape shape;
    shape.heads = c.heads;
    shape.kv_heads = c.kv_heads;
    shape.head_dim = c.head_dim;
    shape.window = c.window;
    shape.scale = 0.1f;
    shape.packed = true;
    const std::int64_t width = (c.heads + 2 * c.kv_heads) * c.head_dim;
    const Tensor qkv = random_normal(Shape(kBatch, kTime, width), c.dtype, random_);
    const Tensor dy = random_normal(Shape(kBatch, kTime, c.heads * c.head_dim), c.dtype, random_);
    const std::vector<Tensor> forward = apply(Attention{.shape = shape}, {qkv});
    ASSERT_EQ(forward.size(), 2u);
    const AttentionGrad op{.shape = shape};
    const std::vector<Tensor> all = apply(op, {qkv, forward[0], forward[1], dy});
    ASSERT_EQ(all.size(), 1u);
    const Tensor together = *all[0].clone_to(host_memory());
    for (const std::int64_t row : {std::int64_t{0}, kBatch / 2, kBatch - 1}) {
      const std::vector<Tensor> alone =
          apply(op, {one(qkv, row), one(forward[0], row), one(forward[1], row), one(dy, row)});
      ASSERT_EQ(alone.size(), 1u);
      const Tensor got = *alone[0].clone_to(host_memory());
      const auto bytes = *got.host_bytes();
      const auto place = static_cast<std::size_t>(row) * bytes.size();
      EXPECT_TRUE(std::ranges::equal(bytes, together.host_bytes()->subspan(place, bytes.size())))
          << "sequence " << row;
    }
  }
}

}  // namespace
}  // namespace volta
