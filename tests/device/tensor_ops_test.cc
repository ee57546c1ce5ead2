// Tensor operations against values worked out by hand, and every refusal.
#include "device/tensor_ops.h"

#include <array>
#include <cmath>
#include <limits>

#include "device/helpers.h"
#include "support/fault_device.h"

namespace volta {
namespace {

using test::expect_error;
using test::f32;
using test::floats;
using test::i32;
using test::ints;
using test::values;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;
using namespace tensor_ops;  // NOLINT(google-build-using-namespace): what is tested.

auto near(const std::vector<float>& wanted, float tolerance = 2e-6f) {
  return Pointwise(FloatNear(tolerance), wanted);
}

class TensorOps : public ::testing::Test {
 protected:
  std::shared_ptr<CpuDevice> shared_ = test::cpu();
  Device& device_ = *shared_;
  const Tensor a_ = floats(Shape(2, 3), {1, 2, 3, 4, 5, 6});
};

TEST_F(TensorOps, MatMul) {
  const Tensor b = floats(Shape(3, 2), {7, 8, 9, 10, 11, 12});
  const auto c = matmul(device_, a_, b);
  EXPECT_THAT(values(c), ElementsAre(58, 64, 139, 154));
  EXPECT_EQ(c->spec(), f32(Shape(2, 2)));
  EXPECT_THAT(values(matmul(device_, a_, a_, {.transpose_b = true})), ElementsAre(14, 32, 32, 77));
  EXPECT_THAT(values(matmul(device_, a_, a_, {.transpose_a = true})),
              ElementsAre(17, 22, 27, 22, 29, 36, 27, 36, 45));
  const Tensor batch = floats(Shape(2, 1, 3), {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(matmul(device_, batch, b)->shape(), Shape(2, 1, 2));
  const Tensor columns = floats(Shape(2, 3, 1), {1, 1, 1, 1, 0, -1});
  const auto batched = matmul(device_, batch, columns);
  EXPECT_EQ(batched->shape(), Shape(2, 1, 1));
  EXPECT_THAT(values(batched), ElementsAre(6, -2));
}

TEST_F(TensorOps, MatMulRefuses) {
  expect_error(matmul(device_, floats(Shape(3), {1, 2, 3}), a_), ErrorCode::kInvalidArgument,
               "matmul needs a tensor of rank 2 or more, not f32[3]");
  expect_error(matmul(device_, a_, floats(Shape(3), {1, 2, 3})), ErrorCode::kInvalidArgument,
               "rank 2");
  expect_error(matmul(device_, a_, a_), ErrorCode::kInvalidArgument, "f32[2, 3]");
  expect_error(matmul(device_, a_, ints(Shape(3, 1), {1, 2, 3})), ErrorCode::kInvalidArgument,
               "i32[3, 1]");
}

TEST_F(TensorOps, Arithmetic) {
  const Tensor y = floats(Shape(2, 3), {2, 2, 2, 4, 4, 4});
  EXPECT_THAT(values(add(device_, a_, y)), ElementsAre(3, 4, 5, 8, 9, 10));
  EXPECT_THAT(values(sub(device_, a_, y)), ElementsAre(-1, 0, 1, 0, 1, 2));
  EXPECT_THAT(values(mul(device_, a_, y)), ElementsAre(2, 4, 6, 16, 20, 24));
  EXPECT_THAT(values(tensor_ops::div(device_, a_, y)), near({0.5, 1, 1.5, 1, 1.25, 1.5}));
  EXPECT_THAT(values(add(device_, a_, floats(Shape(3), {10, 20, 30}))),
              ElementsAre(11, 22, 33, 14, 25, 36));
  EXPECT_THAT(values(mul(device_, a_, floats(Shape(1), {2}))), ElementsAre(2, 4, 6, 8, 10, 12));
  expect_error(add(device_, a_, floats(Shape(2), {1, 2})), ErrorCode::kInvalidArgument, "Binary");
}

TEST_F(TensorOps, Pointwise) {
  const Tensor x = floats(Shape(4), {-1, 0, 1, 2});
  const Tensor positive = floats(Shape(3), {1, 4, 0.25});
  EXPECT_THAT(values(scale(device_, x, -3)), ElementsAre(3, 0, -3, -6));
  EXPECT_THAT(values(tensor_ops::exp(device_, x)),
              near({0.36787944f, 1, 2.7182818f, 7.389056f}, 1e-5f));
  EXPECT_THAT(values(tensor_ops::log(device_, positive)), near({0, 1.3862944f, -1.3862944f}));
  EXPECT_THAT(values(tensor_ops::sqrt(device_, positive)), near({1, 2, 0.5}));
  EXPECT_THAT(values(square(device_, x)), ElementsAre(1, 0, 1, 4));
  EXPECT_THAT(values(tensor_ops::tanh(device_, x)), near({-0.7615942f, 0, 0.7615942f, 0.9640276f}));
  EXPECT_THAT(values(relu(device_, x)), ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(values(gelu(device_, x)), near({-0.15865525f, 0, 0.8413447f, 1.9544997f}));
  EXPECT_THAT(values(gelu_tanh(device_, x)), near({-0.15880801f, 0, 0.841192f, 1.9545977f}));
  EXPECT_THAT(values(silu(device_, x)), near({-0.26894142f, 0, 0.7310586f, 1.7615942f}));
  expect_error(relu(device_, ints(Shape(1), {1})), ErrorCode::kInvalidArgument, "i32[1]");
}

TEST_F(TensorOps, Softmax) {
  const Tensor x = floats(Shape(2, 2), {0, 1, 1000, 1000});
  EXPECT_THAT(values(softmax(device_, x)), near({0.26894142f, 0.7310586f, 0.5, 0.5}));
  EXPECT_THAT(values(softmax(device_, x, 2.0f)), near({0.11920292f, 0.880797f, 0.5, 0.5}));
  expect_error(softmax(device_, floats(Shape(), {1})), ErrorCode::kInvalidArgument, "softmax");
}

TEST_F(TensorOps, Norms) {
  const Tensor x = floats(Shape(1, 2), {1, 3});
  const Tensor weight = floats(Shape(2), {2, 4});
  const Tensor bias = floats(Shape(2), {10, 20});
  EXPECT_THAT(values(layer_norm(device_, x, weight, bias, 1e-12f)), near({8, 24}, 1e-5f));
  const float rms = std::sqrt(5.0f);
  EXPECT_THAT(values(rms_norm(device_, x, weight, 1e-12f)), near({2 / rms, 12 / rms}, 1e-5f));
  expect_error(layer_norm(device_, x, a_, bias), ErrorCode::kInvalidArgument, "Norm");
  expect_error(layer_norm(device_, floats(Shape(), {1}), weight, bias), ErrorCode::kInvalidArgument,
               "layer_norm");
  expect_error(rms_norm(device_, floats(Shape(), {1}), weight), ErrorCode::kInvalidArgument,
               "rms_norm");
}

TEST_F(TensorOps, CrossEntropyIsAMeanOverTheRowsThatCount) {
  const Tensor logits = floats(Shape(3, 2), {0, 0, 1000, -1000, 0, 5});
  const auto loss = cross_entropy(device_, logits, ints(Shape(3), {1, 0, -100}));
  EXPECT_THAT(values(loss), near({std::log(2.0f) / 2}));
  EXPECT_EQ(loss->shape(), Shape());
  EXPECT_THAT(values(cross_entropy(device_, logits, ints(Shape(3), {0, 1, -1}))),
              near({(std::log(2.0f) + 2000) / 2}, 1e-3f));
  EXPECT_THAT(values(cross_entropy(device_, floats(Shape(2), {0, 0}), ints(Shape(), {0}))),
              near({std::log(2.0f)}));
}

TEST_F(TensorOps, CrossEntropyRefuses) {
  const Tensor logits = floats(Shape(2, 2), {0, 0, 0, 0});
  expect_error(cross_entropy(device_, logits, ints(Shape(2), {1, 2})), ErrorCode::kInvalidArgument,
               "target 1 is 2, but there are 2 classes");
  expect_error(cross_entropy(device_, logits, ints(Shape(2), {-1, -1})),
               ErrorCode::kInvalidArgument, "no row has a target");
  expect_error(cross_entropy(device_, logits, ints(Shape(3), {0, 0, 0})),
               ErrorCode::kInvalidArgument, "CrossEntropy");
  expect_error(cross_entropy(device_, logits, floats(Shape(2), {0, 0})),
               ErrorCode::kInvalidArgument, "f32[2]");
  expect_error(cross_entropy(device_, floats(Shape(), {0}), ints(Shape(), {0})),
               ErrorCode::kInvalidArgument, "rank 1");
}

TEST_F(TensorOps, MeanSquaredError) {
  const Tensor target = floats(Shape(2, 3), {1, 2, 3, 4, 5, 12});
  EXPECT_THAT(values(mse(device_, a_, target)), ElementsAre(6));
  expect_error(mse(device_, a_, floats(Shape(3), {1, 2, 3})), ErrorCode::kInvalidArgument,
               "the prediction is f32[2, 3], but the target is f32[3]");
}

TEST_F(TensorOps, ArgmaxTakesTheFirst) {
  const auto best = argmax(device_, floats(Shape(2, 3), {1, 3, 3, -1, -2, -3}));
  EXPECT_THAT(values<std::int32_t>(best), ElementsAre(1, 0));
  EXPECT_EQ(best->spec(), i32(Shape(2)));
  expect_error(argmax(device_, floats(Shape(), {1})), ErrorCode::kInvalidArgument, "argmax");
}

TEST_F(TensorOps, Reductions) {
  EXPECT_THAT(values(sum(device_, a_)), ElementsAre(21));
  EXPECT_EQ(sum(device_, a_)->shape(), Shape());
  EXPECT_THAT(values(sum(device_, floats(Shape(), {4}))), ElementsAre(4));
  EXPECT_THAT(values(sum(device_, a_, 0)), ElementsAre(5, 7, 9));
  EXPECT_THAT(values(sum(device_, a_, -1)), ElementsAre(6, 15));
  EXPECT_THAT(values(mean(device_, a_)), ElementsAre(3.5));
  EXPECT_THAT(values(mean(device_, a_, 1)), ElementsAre(2, 5));
  EXPECT_THAT(values(tensor_ops::max(device_, a_)), ElementsAre(6));
  EXPECT_THAT(values(tensor_ops::max(device_, a_, 0)), ElementsAre(4, 5, 6));
  expect_error(sum(device_, a_, 2), ErrorCode::kInvalidArgument, "sum: f32[2, 3] has no axis 2");
  expect_error(mean(device_, a_, -3), ErrorCode::kInvalidArgument, "no axis -3");
  expect_error(tensor_ops::max(device_, a_, 9), ErrorCode::kInvalidArgument, "no axis 9");
}

TEST_F(TensorOps, Layout) {
  EXPECT_THAT(values(transpose(device_, a_)), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_EQ(transpose(device_, a_)->shape(), Shape(3, 2));
  const Tensor cube = floats(Shape(1, 2, 3), {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(transpose(device_, cube)->shape(), Shape(1, 3, 2));
  EXPECT_EQ(permute(device_, cube, std::array{-1, 0, 1})->shape(), Shape(3, 1, 2));
  EXPECT_THAT(values<std::int32_t>(transpose(device_, ints(Shape(2, 2), {1, 2, 3, 4}))),
              ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(values(slice(device_, a_, 1, 1, 2)), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(values(slice(device_, a_, -2, 1, 1)), ElementsAre(4, 5, 6));
  expect_error(transpose(device_, floats(Shape(2), {1, 2})), ErrorCode::kInvalidArgument, "rank 2");
  expect_error(permute(device_, a_, std::array{0}), ErrorCode::kInvalidArgument,
               "1 axes are given for f32[2, 3]");
  expect_error(permute(device_, a_, std::array{0, 2}), ErrorCode::kInvalidArgument, "no axis 2");
  expect_error(permute(device_, a_, std::array{1, 1}), ErrorCode::kInvalidArgument, "Permute");
  expect_error(slice(device_, a_, 1, 2, 2), ErrorCode::kInvalidArgument, "Slice");
  expect_error(slice(device_, a_, 3, 0, 1), ErrorCode::kInvalidArgument, "no axis 3");
}

TEST_F(TensorOps, CastRoundsToNearestEven) {
  const auto half = cast(device_, floats(Shape(2), {1.00390625f, -2.5f}), DType::kBF16);
  ASSERT_TRUE(half);
  EXPECT_EQ(half->dtype(), DType::kBF16);
  EXPECT_THAT(values(cast(device_, *half, DType::kF32)), ElementsAre(1.0f, -2.5f));
  EXPECT_THAT(values(cast(device_, ints(Shape(2), {-3, 7}), DType::kF32)), ElementsAre(-3, 7));
}

TEST_F(TensorOps, EmbeddingChecksItsIds) {
  const auto rows = embedding(device_, a_, ints(Shape(3), {1, 0, 1}));
  EXPECT_THAT(values(rows), ElementsAre(4, 5, 6, 1, 2, 3, 4, 5, 6));
  expect_error(embedding(device_, a_, ints(Shape(3), {1, 0, 2})), ErrorCode::kInvalidArgument,
               "Embedding: element 2 of its index tensor (2) is out of range");
  expect_error(embedding(device_, a_, ints(Shape(1), {-1})), ErrorCode::kInvalidArgument, "(-1)");
  expect_error(embedding(device_, floats(Shape(1), {1}), ints(Shape(1), {0})),
               ErrorCode::kInvalidArgument, "rank 2");
}

TEST_F(TensorOps, FullFills) {
  EXPECT_THAT(values(full(device_, Shape(2, 2), 1.5f)), ElementsAre(1.5, 1.5, 1.5, 1.5));
  Shape huge(std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::max());
  expect_error(full(device_, huge, 1.0f), ErrorCode::kInvalidArgument, "2147483647");
}

TEST_F(TensorOps, ApplySaysWhatTheDeviceLacks) {
  test::FaultyDevice other(shared_, false);
  const std::vector<Tensor> host = {a_};
  expect_error(apply(other, Unary{}, host), ErrorCode::kInvalidArgument,
               "input 0 of Unary (f32[2, 3]) is not in the memory of device 'cpu'");
  other.supports_all = false;
  expect_error(apply(other, Unary{}, host), ErrorCode::kUnsupported, "no kernel for Unary");
}

TEST_F(TensorOps, ApplyRefusesToWriteWhatItReads) {
  const Tensor block = floats(Shape(4), {1, 2, 3, 4});
  const std::vector<Tensor> shifted = {*block.slice(1, 4), *block.slice(0, 3)};
  expect_error(apply(device_, Accumulate{}, shifted), ErrorCode::kInvalidArgument,
               "writes its input 0, which shares memory with its input 1");
  EXPECT_THAT(values(block), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(apply(device_, Binary{BinaryKind::kAdd}, shifted));
}

// Every failure on the way comes back as an error, and nothing leaks.
TEST_F(TensorOps, EveryFaultComesBack) {
  test::FaultyDevice device(shared_, false);
  {
    const Tensor logits = floats(Shape(2, 2), {0, 1, 2, 3}, device.memory());
    const Tensor targets = ints(Shape(2), {0, 1}, device.memory());
    ASSERT_TRUE(cross_entropy(device, logits, targets));
    ASSERT_TRUE(mse(device, logits, logits));
    ASSERT_TRUE(full(device, Shape(2), 1.0f));
    const auto fails_until_it_works = [&](test::Fuse& fuse, auto operation) {
      int failures = 0;
      for (int nth = 1; nth < 20; ++nth) {
        fuse.arm(nth);
        if (operation()) break;
        ++failures;
      }
      fuse.arm(0);
      return failures;
    };
    const auto entropy = [&] { return cross_entropy(device, logits, targets).has_value(); };
    const auto error = [&] { return mse(device, logits, logits).has_value(); };
    const auto fill = [&] { return full(device, Shape(2), 1.0f).has_value(); };
    EXPECT_GE(fails_until_it_works(device.faulty_memory().allocation_fuse, entropy), 4);
    EXPECT_EQ(fails_until_it_works(device.run_fuse, entropy), 3);
    EXPECT_EQ(fails_until_it_works(device.synchronize_fuse, entropy), 3);
    EXPECT_EQ(fails_until_it_works(device.faulty_memory().copy_fuse, entropy), 1);
    EXPECT_EQ(fails_until_it_works(device.run_fuse, error), 3);
    EXPECT_EQ(fails_until_it_works(device.run_fuse, fill), 1);
    EXPECT_EQ(fails_until_it_works(device.faulty_memory().allocation_fuse, fill), 1);
  }
  EXPECT_EQ(device.faulty_memory().live_bytes(), 0);
}

}  // namespace
}  // namespace volta
