// Block formats against the gguf package: its dequantisation of random blocks, its blocks of
// values.
#include "formats/gguf/ggml_types.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device/helpers.h"
#include "formats/gguf/gguf_bytes.h"

namespace volta {
namespace {

using test::expect_error;

std::vector<float> all_values(const GgufFile& file, std::string_view name) {
  const GgufTensor* tensor = file.find_tensor(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (tensor == nullptr) return {};
  std::vector<float> values(static_cast<std::size_t>(tensor->shape.elements()));
  file.read_values(*tensor, 0, values);
  return values;
}

TEST(GgmlTypes, EveryFormatReadsAsItIsDefined) {
  const GgufFile file = test::open_gguf(test::gguf_data("types.gguf"));
  for (const char* type :
       {"F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"}) {
    const std::string name = std::string("read.") + type;
    const auto values = all_values(file, name);
    EXPECT_EQ(values, all_values(file, name + ".values")) << type;
    EXPECT_GT(values.size(), 63u);
    // Any range of whole blocks.
    const GgufTensor* tensor = file.find_tensor(name);
    const auto block = static_cast<std::size_t>(ggml_type_info(tensor->type).block_values);
    std::vector<float> second(block);
    file.read_values(*tensor, static_cast<std::int64_t>(block), second);
    EXPECT_TRUE(std::equal(second.begin(), second.end(), values.begin() + std::ssize(second)));
  }
}

TEST(GgmlTypes, BlocksAreWrittenBitForBit) {
  const GgufFile file = test::open_gguf(test::gguf_data("types.gguf"));
  const auto values = all_values(file, "write");
  for (const GgmlType type :
       {GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0, GgmlType::kQ4_0, GgmlType::kQ4_1}) {
    const GgmlTypeInfo& info = ggml_type_info(type);
    const GgufTensor* wanted = file.find_tensor(fmt::format("write.{}", info.name));
    ASSERT_NE(wanted, nullptr);
    std::vector<std::byte> blocks(static_cast<std::size_t>(wanted->bytes));
    ASSERT_TRUE(quantize(type, values, blocks));
    EXPECT_TRUE(std::ranges::equal(blocks, file.tensor_bytes(*wanted))) << info.name;
    EXPECT_TRUE(can_quantize(type));
  }
  std::vector<std::byte> same(values.size() * 4);
  ASSERT_TRUE(quantize(GgmlType::kF32, values, same));
  EXPECT_TRUE(std::ranges::equal(same, std::as_bytes(std::span(values))));
}

TEST(GgmlTypes, WhatATypeCannotHoldIsRefused) {
  std::vector<std::byte> blocks(64 * 4);
  std::vector<float> values(64, 1.0f);
  const auto refuse = [&](GgmlType type, const std::string& text) {
    expect_error(quantize(type, values, blocks), ErrorCode::kNonFinite, text);
  };
  values[40] = 70000.0f;
  refuse(GgmlType::kF16, "value 70000 cannot be stored as F16; choose f32 or bf16");
  values[40] = 1e30f;
  refuse(GgmlType::kQ8_0, "cannot be stored as Q8_0");
  refuse(GgmlType::kQ4_0, "cannot be stored as Q4_0");
  refuse(GgmlType::kQ4_1, "cannot be stored as Q4_1");
  values.assign(64, 1e30f);  // No spread, but a minimum beyond F16.
  refuse(GgmlType::kQ4_1, "cannot be stored as Q4_1");
  values[3] = std::numeric_limits<float>::quiet_NaN();
  for (const GgmlType type : {GgmlType::kQ8_0, GgmlType::kQ4_0, GgmlType::kQ4_1}) {
    refuse(type, "value nan");
  }
  // The floats have NaNs and infinities of their own.
  values[4] = std::numeric_limits<float>::infinity();
  values.resize(5);
  values[0] = values[1] = values[2] = 2.0f;
  for (const GgmlType type : {GgmlType::kF16, GgmlType::kBF16}) {
    ASSERT_TRUE(quantize(type, values, blocks));
    std::vector<float> back(5);
    dequantize(type, std::span(blocks).first(10), back);
    EXPECT_TRUE(std::isnan(back[3]));
    EXPECT_EQ(back[4], std::numeric_limits<float>::infinity());
  }
  expect_error(quantize(GgmlType::kQ6_K, values, blocks), ErrorCode::kUnsupported,
               "Volta reads Q6_K and does not write it");
  EXPECT_FALSE(can_quantize(GgmlType::kQ4_K));
}

TEST(GgmlTypes, TinyAndHalfwayValuesRound) {
  std::vector<float> values(32, 0.0f);
  values[0] = 127.0f;
  values[1] = 0.5f;
  values[2] = -0.5f;
  std::vector<std::byte> block(34);
  ASSERT_TRUE(quantize(GgmlType::kQ8_0, values, block));
  EXPECT_EQ(block[3], std::byte{1});  // Away from zero.
  EXPECT_EQ(block[4], std::byte{0xFF});
  values.assign(32, 1e-40f);  // Its inverse is infinite.
  std::vector<std::byte> four(20);
  EXPECT_TRUE(quantize(GgmlType::kQ4_1, values, four));
  values[0] = -1e-40f;
  EXPECT_TRUE(quantize(GgmlType::kQ4_0, values, std::span(four).first(18)));
  EXPECT_TRUE(quantize(GgmlType::kQ8_0, values, block));
}

TEST(GgmlTypes, HaveNames) {
  EXPECT_EQ(find_ggml_type("q4_k")->type, GgmlType::kQ4_K);
  EXPECT_EQ(find_ggml_type("F32")->block_bytes, 4);
  EXPECT_FALSE(find_ggml_type("q4"));
  EXPECT_EQ(find_ggml_type(30u)->name, "BF16");
  EXPECT_FALSE(find_ggml_type(4u));
  EXPECT_EQ(ggml_type_name(23), "IQ4_XS");
  EXPECT_EQ(ggml_type_name(4), "number 4");
  EXPECT_EQ(ggml_type_name(4000), "number 4000");
  EXPECT_EQ(known_ggml_types(),
            "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K");
}

}  // namespace
}  // namespace volta
