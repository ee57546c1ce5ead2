// Cases of Encode, and what a case cannot see: that panels are filled up with zeros, and which ops
// read an encoded tensor.
#include <gtest/gtest.h>

#include <array>

#include "ops/op_case.h"
#include "ops/runner.h"

namespace volta::op_test {

std::vector<OpCase> cases(const Encode&) {
  std::vector<OpCase> all;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool transposed : {false, true}) {
      for (const auto& [rows, columns] :
           {std::pair{1, 1}, {7, 16}, {33, 5}, {70, 45}, {300, 130}}) {
        const TensorSpec plain{dtype, Shape(rows, columns)};
        const TensorSpec panels = in_panels(plain, transposed);
        const std::string name = std::string(dtype_name(dtype)) + (transposed ? "_t_" : "_") +
                                 std::to_string(rows) + "x" + std::to_string(columns);
        all.push_back(OpCase(name, Encode{panels.encoding}).in(plain));
        all.push_back(OpCase(name + "_back", Encode{}).in(panels));
      }
    }
  }
  // Groups of rows: K whole and not, and widths that the vectors have and have not.
  for (const bool transposed : {false, true}) {
    for (const std::int32_t width : {8, 16, 32}) {
      for (const auto& [rows, columns] : {std::pair{1, 1}, {64, 40}, {33, 65}, {70, 45}}) {
        const TensorSpec plain{DType::kBF16, Shape(rows, columns)};
        const TensorSpec panels = in_panels(plain, transposed, width, 2);
        const std::string name = "pairs_" + std::to_string(width) + (transposed ? "_t_" : "_") +
                                 std::to_string(rows) + "x" + std::to_string(columns);
        all.push_back(OpCase(name, Encode{panels.encoding}).in(plain));
        all.push_back(OpCase(name + "_back", Encode{}).in(panels));
      }
      const TensorSpec wide{DType::kF32, Shape(70, 45)};
      const TensorSpec panels = in_panels(wide, transposed, width);
      all.push_back(
          OpCase("f32_" + std::to_string(width) + (transposed ? "_t" : ""), Encode{panels.encoding})
              .in(wide));
    }
  }
  all.push_back(OpCase("rows_to_rows", Encode{}).in(f32({5, 7})));
  return all;
}

namespace {

TEST(Encode, FillsTheLastPanelUpWithZeros) {
  for (const bool transposed : {false, true}) {
    const std::vector<float> ones(3 * 5, 1.0f);
    const Shape shape = transposed ? Shape(5, 3) : Shape(3, 5);
    const std::array x = {*Tensor::from_values<float>(shape, ones)};
    const Encode op{{Packing::kPanels, transposed, 4}};
    const std::vector<TensorSpec> specs = *infer(op, std::array{x[0].spec()});
    const Tensor y = *Tensor::empty(specs[0]);
    std::ranges::fill(*y.host_bytes(), std::byte{0xFF});
    const std::array in = {x[0].view()}, out = {y.view()};
    const Op any = op;
    ASSERT_TRUE(device(cpu::Simd::kSse4, 2).run({.op = &any, .inputs = in, .outputs = out}));
    const auto got = typed_span<float>(*y.host_bytes());
    ASSERT_EQ(got.size(), 2u * 3 * 4);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i], i < 12 || i % 4 == 0 ? 1.0f : 0.0f) << i;
    }
  }
}

TEST(Encode, FillsGroupsUpWithZeros) {
  for (const bool transposed : {false, true}) {
    const std::vector<std::uint16_t> ones(3 * 5, 0x3F80);
    Tensor x = *Tensor::empty({DType::kBF16, transposed ? Shape(5, 3) : Shape(3, 5)});
    ASSERT_TRUE(x.write_bytes(std::as_bytes(std::span(ones))));
    const Op op = Encode{{Packing::kPanels, transposed, 8, 2}};
    const Tensor y = *Tensor::empty((*infer(op, std::array{x.spec()}))[0]);
    std::ranges::fill(*y.host_bytes(), std::byte{0xFF});
    const std::array in = {x.view()}, out = {y.view()};
    ASSERT_TRUE(device(cpu::Simd::kSse4, 2).run({.op = &op, .inputs = in, .outputs = out}));
    const auto got = typed_span<std::uint16_t>(*y.host_bytes());
    ASSERT_EQ(got.size(), 4u * 8);  // Two groups of two of the three rows.
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t k = i / 16 * 2 + i % 2, n = i / 2 % 8;
      EXPECT_EQ(got[i], k < 3 && n < 5 ? 0x3F80 : 0) << i;
    }
  }
}

TEST(Encode, OnlyOpsThatKnowPanelsTakeThem) {
  const TensorSpec x = f32({2, 3}), plain = f32({3, 5}), turned = f32({5, 3});
  const auto takes = [](const Op& op, const std::vector<TensorSpec>& specs) {
    return infer(op, specs).has_value();
  };
  EXPECT_TRUE(takes(MatMul{}, {x, in_panels(plain, false)}));
  EXPECT_TRUE(takes(MatMul{.transpose_b = true}, {x, in_panels(turned, true)}));
  EXPECT_FALSE(takes(MatMul{}, {x, in_panels(plain, true)}));
  EXPECT_FALSE(takes(MatMul{.transpose_b = true}, {x, in_panels(turned, false)}));
  EXPECT_FALSE(takes(MatMul{}, {in_panels(x, false), plain}));
  EXPECT_FALSE(takes(MatMul{.transpose_a = true}, {f32({3, 2}), in_panels(plain, false)}));
  EXPECT_TRUE(takes(Embedding{}, {in_panels(turned, true), i32({2})}));
  EXPECT_FALSE(takes(Embedding{}, {in_panels(turned, false), i32({2})}));
  EXPECT_FALSE(takes(Unary{UnaryKind::kExp}, {in_panels(plain, false)}));
  EXPECT_FALSE(takes(Cast{DType::kBF16}, {in_panels(plain, false)}));
  EXPECT_FALSE(takes(Encode{in_panels(plain, true).encoding}, {in_panels(plain, false)}));
  const auto refusal = infer(Unary{UnaryKind::kExp}, std::array{in_panels(plain, false)});
  EXPECT_NE(refusal.error().message().find("f32[3, 5] in panels of 16"), std::string::npos)
      << refusal.error().message();
}

}  // namespace
}  // namespace volta::op_test
