// Products with weights of small integers on a GPU: the same bits as on a CPU with fused
// multiply-add, whose order of sums tests/kernels checks against plain loops. And the ways into
// blocks of integers. Skipped where no GPU can be used.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "device/gpu_fixture.h"
#include "device/helpers.h"
#include "device/tensor_ops.h"
#include "tensor/float16.h"
#include "tensor/weight_format.h"

namespace volta {
namespace {

using test::f32;

struct Case {
  std::int64_t m, k, n;
  std::int32_t block = 32;
};

class GpuQuant : public test::GpuTest, public ::testing::WithParamInterface<Quant> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    cpu_ = test::cpu(2);
    if (cpu_->info().isa.find("sse4") != std::string::npos) {
      GTEST_SKIP() << "this CPU has no fused multiply-add, which the GPU uses";
    }
  }

  bool is_k() const { return format_info(GetParam()).block == kMaxBlock; }
  std::vector<Case> cases() const {
    if (is_k()) {
      return {{1, 256, 1},    {1, 512, 200},  {2, 256, 40},    {3, 768, 97},    {7, 512, 64},
              {19, 256, 130}, {33, 512, 65},  {70, 1024, 129}, {130, 256, 256}, {1, 3584, 9},
              {4, 2048, 9},   {1, 512, 8500}, {16, 8192, 9},   {33, 40960, 700}};
    }
    return {{1, 1, 1},
            {1, 256, 200, 128},
            {1, 70, 33, 64},
            {2, 96, 40},
            {3, 200, 130, 64},
            {5, 33, 17},
            {7, 320, 100, 64},
            {19, 64, 300},
            {3, 300, 40, 256},
            {2, 100, 40, 96},
            {26, 130, 65, 128},
            {40, 300, 70, 128},
            {70, 288, 33},
            {130, 1024, 256, 128},
            {1, 2048, 9},
            {8, 2048, 9, 128},
            {4, 4096, 9, 128},
            {20, 768, 9, 256},
            // n so large that a thread block computes several groups of columns; rows too large for
            // shared memory; K so long that b is read twice, or that the kernel for many rows
            // computes the product.
            {19, 256, 8499},
            {1, 512, 8500, 128},
            {16, 2048, 9, 128},
            {16, 14336, 9, 128},
            {9, 8192, 9},
            {1, 40000, 9},
            // So large that b is unpacked in two parts.
            {33, 40000, 700}};
  }
  Encoding rows(const Case& c, bool transposed = true) const {
    return {.transposed = transposed, .quant = GetParam(), .block = is_k() ? kMaxBlock : c.block};
  }
  TensorSpec spec(const Case& c, bool transposed = true) const {
    return {DType::kF32, transposed ? Shape(c.n, c.k) : Shape(c.k, c.n), rows(c, transposed)};
  }

  // Normal numbers; in two of three rows some are 40 times larger.
  Tensor activations(const Case& c) {
    std::vector<float> x(static_cast<std::size_t>(c.m * c.k));
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(c.k);
      x[i] = normal(random_) * (row % 3 != 2 && i % 37 == 5 ? 40.0f : 1.0f);
    }
    return test::floats(Shape(c.m, c.k), x);
  }
  // A weight in rows of blocks: rounded from floats, or in the K formats random blocks, any byte
  // of which is valid.
  Tensor weight(const Case& c, bool transposed = true) {
    if (!is_k()) {
      return *tensor_ops::as_spec(*cpu_, plain_weight(c, transposed), spec(c, transposed));
    }
    Tensor out = *Tensor::empty(spec(c, transposed));
    const std::span<std::byte> bytes = *out.host_bytes();
    for (std::byte& each : bytes) each = static_cast<std::byte>(random_());
    const FormatInfo& format = format_info(GetParam());
    const auto size = static_cast<std::size_t>(rows(c).block_bytes());
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      const std::uint16_t scale = f16_from_f32(1e-4f), least = f16_from_f32(8e-4f);
      std::memcpy(&bytes[at + static_cast<std::size_t>(format.scale_at)], &scale, 2);
      if (format.minimums) {
        std::memcpy(&bytes[at + static_cast<std::size_t>(format.scale_at) + 2], &least, 2);
      }
    }
    return out;
  }
  Tensor plain_weight(const Case& c, bool transposed) {
    std::vector<float> b(static_cast<std::size_t>(c.k * c.n));
    std::normal_distribution<float> normal;
    for (float& each : b) each = normal(random_);
    return test::floats(transposed ? Shape(c.n, c.k) : Shape(c.k, c.n), b);
  }

  // The product on a device, of operands on the host; the weight in the form that the device
  // prefers.
  static Tensor product(Device& device, const MatMul& op, const Tensor& a, const Tensor& b,
                        const std::vector<Tensor>& rest = {}) {
    TensorSpec wanted = b.spec();
    wanted.encoding = device.preferred_encoding(op, 1, b.spec());
    EXPECT_TRUE(wanted.encoding.quantized());
    std::vector<Tensor> inputs = {
        *a.clone_to(device.memory()),
        *tensor_ops::as_spec(device, *b.clone_to(device.memory()), wanted)};
    for (const Tensor& each : rest) inputs.push_back(*each.clone_to(device.memory()));
    auto result = tensor_ops::apply(device, op, inputs);
    if (!result) {
      ADD_FAILURE() << result.error().message();
      return *Tensor::zeros(f32(Shape(a.shape()[0], 1)));
    }
    return *result->front().clone_to(host_memory());
  }
  static void expect_same_bits(const Tensor& got, const Tensor& expected) {
    EXPECT_TRUE(std::ranges::equal(*got.host_bytes(), *expected.host_bytes()));
  }

  std::shared_ptr<Device> cpu_;
  std::mt19937 random_{3};
};

INSTANTIATE_TEST_SUITE_P(Formats, GpuQuant,
                         ::testing::Values(Quant::kInt8, Quant::kInt4, Quant::kQ4K, Quant::kQ5K,
                                           Quant::kQ6K),
                         [](const auto& quant) {
                           return std::string(format_info(quant.param).name);
                         });

std::string text(const Case& c, bool transposed) {
  return std::to_string(c.m) + "x" + std::to_string(c.k) + "x" + std::to_string(c.n) + " by " +
         std::to_string(c.block) + (transposed ? " t" : "");
}

TEST_P(GpuQuant, ProductsAreTheCpusBits) {
  for (const Case& c : cases()) {
    for (const bool transposed : {true, false}) {
      SCOPED_TRACE(text(c, transposed));
      const MatMul op = {.transpose_b = transposed};
      const Tensor a = activations(c), b = weight(c, transposed);
      expect_same_bits(product(*gpu_, op, a, b), product(*cpu_, op, a, b));
    }
  }
}

TEST_P(GpuQuant, TheEpilogueIsTheCpus) {
  const MatMul op = {
      .transpose_b = true, .has_bias = true, .has_residual = true, .activation = Activation::kRelu};
  for (const std::int64_t rows : {3, 19, 37}) {
    SCOPED_TRACE(rows);
    const Case c{rows, 512, 100};
    const Tensor a = activations(c), b = weight(c);
    const std::vector<Tensor> rest = {test::floats(Shape(100), std::vector<float>(100, 0.25f)),
                                      activations({rows, 100, 1})};
    expect_same_bits(product(*gpu_, op, a, b, rest), product(*cpu_, op, a, b, rest));
  }
}

TEST_P(GpuQuant, ARowDoesNotDependOnTheOthers) {
  const Case c{70, 512, 260};
  const MatMul op = {.transpose_b = true};
  const Tensor a = activations(c), b = weight(c);
  const Tensor all = product(*gpu_, op, a, b);
  for (const std::int64_t rows : {1, 2, 8, 16, 17, 31, 33, 64}) {
    const Tensor part = *tensor_ops::slice(*cpu_, a, 0, 0, rows);
    const Tensor got = product(*gpu_, op, part, b);
    const auto bytes = *got.host_bytes();
    EXPECT_TRUE(std::ranges::equal(bytes, all.host_bytes()->first(bytes.size()))) << rows;
  }
}

// Rounding to blocks, and blocks back to floats.
TEST_P(GpuQuant, EncodesAsTheCpu) {
  for (const Case& c : cases()) {
    for (const bool transposed : {true, false}) {
      SCOPED_TRACE(text(c, transposed));
      const Tensor blocks = weight(c, transposed);
      const TensorSpec plain{DType::kF32, blocks.shape()};
      const Tensor there = *blocks.clone_to(gpu_->memory());
      expect_same_bits(*tensor_ops::as_spec(*gpu_, there, plain)->clone_to(host_memory()),
                       *tensor_ops::as_spec(*cpu_, blocks, plain));
      if (is_k()) continue;  // Files alone have these.
      const Tensor values = plain_weight(c, transposed);
      expect_same_bits(*tensor_ops::as_spec(*gpu_, *values.clone_to(gpu_->memory()), blocks.spec())
                            ->clone_to(host_memory()),
                       *tensor_ops::as_spec(*cpu_, values, blocks.spec()));
    }
  }
}

// Weights that a model was asked to keep as integers are integers on a GPU, too.
TEST_P(GpuQuant, WeightsAreKeptAsIntegers) {
  TensorSpec asked = f32(Shape(96, 512));
  asked.encoding.quant = GetParam();
  if (is_k()) asked.encoding.block = kMaxBlock;
  const MatMul op = {.transpose_b = true};
  const Encoding kept = gpu_->preferred_encoding(op, 1, asked);
  EXPECT_EQ(kept.quant, GetParam());
  EXPECT_EQ(kept.packing, Packing::kRows);
  EXPECT_EQ(kept.block, cpu_->preferred_encoding(op, 1, asked).block);
}

}  // namespace
}  // namespace volta
