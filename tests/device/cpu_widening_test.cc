// 16-bit operands of kernels that compute in f32: blocks of rows give the bits of the op on whole
// f32 copies, on any number of threads, and name the same bad index.
#include "device/cpu_widening.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/helpers.h"
#include "device/op_samples.h"
#include "device/tensor_ops.h"
#include "ops/rules.h"
#include "support/assert_ok.h"

namespace volta {
namespace {

using test::expect_error;
using test::floats;
using test::ints;
using test::wave;

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
  EXPECT_TRUE(tensor.read_bytes(bytes));
  return bytes;
}

Tensor cast(Device& device, const Tensor& tensor, DType dtype) {
  auto result = tensor_ops::cast(device, tensor, dtype);
  EXPECT_TRUE(result);
  return *std::move(result);
}

// An op, its operands in f32, and which of them are rounded to 16 bits.
struct Case {
  Op op;
  std::vector<Tensor> inputs;
  std::uint32_t narrow;
};

Tensor targets(std::int64_t rows, std::int64_t classes) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < rows; ++i) {
    ids.push_back(i % 7 == 3 ? -1 : static_cast<std::int32_t>(i * 31 % classes));
  }
  return ints(Shape(rows), ids);
}

// Rows that are shorter than a block and longer, whose number is no multiple of a block's, and
// operands without any axis but one.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Shape& shape : {Shape(3, 301, 97), Shape(5, 20'011), Shape(90'001), Shape(1, 1)}) {
    const Tensor x = wave(shape), y = wave(shape, 1), z = wave(shape, 2);
    all.push_back({Unary{UnaryKind::kGeluTanh}, {x}, 0b1});
    all.push_back({UnaryGrad{UnaryKind::kSilu}, {x, y}, 0b11});
    all.push_back({Binary{BinaryKind::kAdd}, {x, y}, 0b11});
    all.push_back({GatedUnit{}, {x, y}, 0b11});
    all.push_back({GatedUnitGrad{}, {x, y, z}, 0b111});
    const std::int64_t columns = shape.columns(), rows = shape.rows();
    // y is repeated: such an op has no rows of its own.
    all.push_back({Binary{BinaryKind::kMul}, {x, wave(Shape(columns), 3)}, 0b11});
    all.push_back({Softmax{0.5f}, {x}, 0b1});
    all.push_back({SoftmaxGrad{0.5f}, {x, y}, 0b11});
    all.push_back({Norm{NormKind::kLayer, true},
                   {x, wave(Shape(columns), 4), wave(Shape(columns), 5)},
                   0b111});
    all.push_back({Norm{NormKind::kRms}, {x, wave(Shape(columns), 4)}, 0b1});
    if (shape.rank() != 2) continue;
    all.push_back({CrossEntropy{}, {x, targets(rows, columns)}, 0b1});
    all.push_back({CrossEntropyGrad{},
                   {x, targets(rows, columns), wave(Shape(rows), 6), wave(Shape(rows), 7)},
                   0b1});
  }
  return all;
}

TEST(CpuWidening, BlocksGiveTheBitsOfWholeCopies) {
  for (const cpu::Simd simd : test::simds()) {
    const auto one = test::cpu(1, simd);
    for (const Case& c : cases()) {
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        SCOPED_TRACE(to_string(c.op) + " of " + to_string(c.inputs[0].spec()) + " as " +
                     std::string(dtype_name(dtype)) + " on " + cpu::simd_name(simd));
        std::vector<Tensor> narrow, wide;
        for (std::size_t i = 0; i < c.inputs.size(); ++i) {
          const bool rounded = in_mask(c.narrow, i);
          narrow.push_back(rounded ? cast(*one, c.inputs[i], dtype) : c.inputs[i]);
          wide.push_back(rounded ? cast(*one, narrow[i], DType::kF32) : c.inputs[i]);
        }
        const auto expected = tensor_ops::apply(*one, c.op, wide);
        ASSERT_TRUE(expected);
        for (const int threads : {1, 3, 8}) {
          const auto device = test::cpu(threads, simd);
          const auto results = tensor_ops::apply(*device, c.op, narrow);
          ASSERT_TRUE(results) << results.error().message();
          ASSERT_EQ(results->size(), expected->size());
          for (std::size_t i = 0; i < results->size(); ++i) {
            const Tensor& result = (*results)[i];
            EXPECT_EQ(bytes_of(result), bytes_of(cast(*one, (*expected)[i], result.dtype())))
                << "result " << i << " on " << threads << " threads";
          }
        }
      }
    }
  }
}

// A product whose result has 16 bits sums in f32 and rounds once: rows and columns that fill no
// tile, K in several blocks, plain weights that are read in place or packed, and panels.
TEST(CpuWidening, ProductsRoundTheSumsOfAll) {
  struct Sizes {
    std::int64_t m, n, k;
  };
  for (const cpu::Simd simd : test::simds()) {
    const auto one = test::cpu(1, simd);
    for (const Sizes& size : {Sizes{1, 97, 40}, Sizes{70, 97, 130}, Sizes{600, 161, 33},
                              Sizes{33, 700, 4000}, Sizes{5, 64, 10'000}}) {
      for (const DType type : {DType::kF32, DType::kBF16}) {
        for (const int form : {0, 1, 2, 3}) {  // Plain, transposed a, transposed b, panels.
          MatMul op{.transpose_a = form == 1,
                    .transpose_b = form == 2,
                    .has_bias = size.m % 2 == 0,
                    .has_residual = size.m % 3 == 0,
                    .activation = size.m % 5 == 0 ? Activation::kRelu : Activation::kNone};
          const Shape a_shape = form == 1 ? Shape(size.k, size.m) : Shape(size.m, size.k);
          const Shape b_shape = form == 2 ? Shape(size.n, size.k) : Shape(size.k, size.n);
          Tensor b = cast(*one, wave(b_shape, 1), type);
          if (form == 3) {
            TensorSpec spec = b.spec();
            spec.encoding = one->preferred_encoding(op, 1, spec);
            b = *tensor_ops::as_spec(*one, b, spec);
          }
          std::vector<Tensor> inputs = {cast(*one, wave(a_shape), type), b};
          if (op.has_bias) inputs.push_back(wave(Shape(size.n), 2));
          for (const DType out : {DType::kBF16, DType::kF16}) {
            SCOPED_TRACE(to_string(Op(op)) + " of " + to_string(inputs[0].spec()) + " and " +
                         to_string(b.spec()) + " on " + cpu::simd_name(simd));
            std::vector<Tensor> narrow = inputs, wide = inputs;
            if (op.has_residual) {
              narrow.push_back(cast(*one, wave(Shape(size.m, size.n), 3), out));
              wide.push_back(cast(*one, narrow.back(), DType::kF32));
            }
            op.out = DType::kF32;
            const auto sums = tensor_ops::apply(*one, op, wide);
            ASSERT_TRUE(sums) << sums.error().message();
            const std::vector<std::byte> expected = bytes_of(cast(*one, (*sums)[0], out));
            op.out = out;
            for (const int threads : {1, 3, 8}) {
              const auto result = tensor_ops::apply(*test::cpu(threads, simd), op, narrow);
              ASSERT_TRUE(result) << result.error().message();
              EXPECT_EQ((*result)[0].dtype(), out);
              EXPECT_EQ(bytes_of((*result)[0]), expected) << threads << " threads";
            }
          }
        }
      }
    }
  }
}

// A plan may let a result take the place of an operand.
TEST(CpuWidening, AResultMayTakeAnOperandsPlace) {
  const auto device = test::cpu(3);
  const Tensor x = cast(*device, wave(Shape(301, 97)), DType::kBF16);
  const Tensor y = cast(*device, wave(Shape(301, 97), 1), DType::kBF16);
  const Op op = Binary{BinaryKind::kSub};
  const auto expected = tensor_ops::apply(*device, op, std::vector{x, y});
  ASSERT_TRUE(expected);
  const std::vector specs = {x.spec(), y.spec()}, results = {x.spec()};
  const std::int64_t bytes = device->workspace_bytes(op, specs, results);
  const Tensor workspace = *Tensor::empty({DType::kI8, Shape(bytes)}, device->memory());
  const std::array inputs = {x.view(), y.view()};
  const std::array outputs = {x.view()};
  ASSERT_TRUE(device->run(
      {.op = &op,
       .inputs = inputs,
       .outputs = outputs,
       .workspace = {workspace.view().as<std::byte>(), static_cast<std::size_t>(bytes)}}));
  EXPECT_EQ(bytes_of(x), bytes_of((*expected)[0]));
}

TEST(CpuWidening, ABadTargetIsNamedByItsPlaceAmongAllRows) {
  const auto device = test::cpu(3);
  constexpr std::int64_t kRows = 1000, kClasses = 100;
  std::vector<std::int32_t> ids(kRows, 1);
  ids[517] = 100;
  ids[901] = 7000;
  const Tensor logits = cast(*device, wave(Shape(kRows, kClasses)), DType::kBF16);
  expect_error(
      tensor_ops::apply(*device, CrossEntropy{}, std::vector{logits, ints(Shape(kRows), ids)}),
      ErrorCode::kInvalidArgument, "element 517 of its index tensor (100) is out of range");
}

// Blocks run side by side, so a kernel that needs a workspace has one in each part.
TEST(CpuWidening, PartsHaveWorkspacesOfTheirOwn) {
  constexpr std::int64_t kBytes = 40;
  const auto device = test::cpu(1);
  const Tensor x = cast(*device, wave(Shape(90'001)), DType::kBF16);
  const Tensor y = *Tensor::empty(x.spec(), device->memory());
  const std::array inputs = {x.view()}, outputs = {y.view()};
  VOLTA_ASSERT_OK(ThreadPool pool, ThreadPool::create(4));
  const cpu::Context context{.simd = device->simd(), .pool = &pool};
  auto widening = CpuWidening::find(Unary{UnaryKind::kRelu}, {inputs, outputs}, context);
  ASSERT_TRUE(widening);
  const std::int64_t bytes = widening->workspace_bytes(kBytes);
  const Tensor memory = *Tensor::empty({DType::kI8, Shape(bytes)}, device->memory());
  widening->place(kBytes, *memory.host_bytes());
  std::atomic<int> blocks = 0;
  std::atomic<bool> separate = true;
  widening->run(context, [&](const cpu::Args& args, const cpu::Context& /*now*/) {
    const auto mark = static_cast<std::byte>(++blocks);
    std::ranges::fill(args.workspace, mark);
    for (std::int64_t i = 0; i < args.inputs[0].shape.elements(); ++i) {
      args.outputs[0].as<float>()[i] = args.inputs[0].as<const float>()[i];
    }
    const bool own = std::ranges::all_of(args.workspace, [&](std::byte b) { return b == mark; });
    if (!own || std::ssize(args.workspace) != kBytes) separate = false;
  });
  EXPECT_GT(blocks, 4);
  EXPECT_TRUE(separate);
  EXPECT_EQ(bytes_of(y), bytes_of(x));
}

// Copies of blocks stay small, however large the operands are.
TEST(CpuWidening, MemoryDoesNotGrowWithTheOperands) {
  const auto device = test::cpu(4);
  const auto bytes = [&](std::int64_t rows) {
    const std::vector<TensorSpec> logits = {{DType::kBF16, Shape(rows, 50257)},
                                            test::i32(Shape(rows)),
                                            test::f32(Shape(rows)),
                                            test::f32(Shape(rows))};
    return device->workspace_bytes(CrossEntropyGrad{}, logits, std::vector{logits[0]});
  };
  EXPECT_GT(bytes(4), 0);
  EXPECT_EQ(bytes(4096), bytes(1024));
  EXPECT_LE(bytes(4096), 4 * (50257 * 4 + 64));
}

}  // namespace
}  // namespace volta
