#include "formats/non_finite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "nn/helpers.h"

namespace volta {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

NonFinite count(std::span<const std::byte> bytes, DType dtype, int threads = 2) {
  auto pool = ThreadPool::create(threads);
  return count_non_finite(bytes, dtype, *pool);
}

void expect(const NonFinite& found, std::int64_t nans, std::int64_t infinities,
            std::int64_t first) {
  EXPECT_EQ(found.nans, nans);
  EXPECT_EQ(found.infinities, infinities);
  EXPECT_EQ(found.first, first);
}

TEST(NonFinite, CountsAndFindsTheFirst) {
  std::vector<float> values(3'000'001, std::numeric_limits<float>::max());
  values[7] = -std::numeric_limits<float>::denorm_min();
  const auto bytes = std::as_bytes(std::span(values));
  expect(count(bytes, DType::kF32), 0, 0, -1);
  values[2'999'999] = kInf;
  values[1'234'567] = -kInf;
  values[1'234'568] = std::nanf("");
  values[3'000'000] = -std::nanf("7");
  for (const int threads : {1, 2, 4}) expect(count(bytes, DType::kF32, threads), 2, 2, 1'234'567);
  expect(count(bytes.first(4), DType::kF32), 0, 0, -1);
  expect(count({}, DType::kF32), 0, 0, -1);
  std::fill(values.begin(), values.end(), kInf);
  expect(count(bytes, DType::kF32), 0, 3'000'001, 0);
}

// All 65536 values of both 16-bit types, against their definitions.
TEST(NonFinite, KnowsEveryHalf) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const auto bytes = std::as_bytes(std::span(all));
  expect(count(bytes, DType::kBF16), 2 * 127, 2, 0x7f80);
  expect(count(bytes, DType::kF16), 2 * 1023, 2, 0x7c00);
  expect(count(bytes, DType::kI32), 0, 0, -1);
  expect(count(bytes, DType::kI8), 0, 0, -1);
}

TEST(NonFinite, AnyAddressWillDo) {
  std::vector<float> values(100'000, 1.0f);
  values[99'998] = std::nanf("");
  const auto source = std::as_bytes(std::span(values));
  std::vector<std::byte> shifted(source.size() + 1);
  std::copy(source.begin(), source.end(), shifted.begin() + 1);
  expect(count(std::span<const std::byte>(shifted).subspan(1), DType::kF32), 1, 0, 99'998);
}

TEST(NonFinite, PartsAddUp) {
  NonFinite sum;
  sum.add({.nans = 0, .infinities = 0, .first = -1}, 0);
  EXPECT_EQ(sum.first, -1);
  sum.add({.nans = 1, .infinities = 2, .first = 5}, 100);
  sum.add({.nans = 1, .infinities = 0, .first = 0}, 200);
  expect(sum, 2, 2, 105);
}

TEST(NonFinite, ValuesMayComeFromAFunction) {
  const auto read = [](std::int64_t first, std::span<float> values) {
    std::ranges::fill(values, 1.0f);
    if (first == 2 * 4096) values[7] = INFINITY;
    if (first == 4 * 4096) values.back() = std::nanf("");
  };
  auto pool = ThreadPool::create(2);
  expect(count_non_finite(5 * 4096 - 3, *pool, read), 1, 1, 2 * 4096 + 7);
  expect(count_non_finite(0, *pool, read), 0, 0, -1);
}

// Each format has its scales elsewhere in a block; integers may have any bits.
TEST(NonFinite, FindsTheScalesOfEveryFormat) {
  struct Row {
    Encoding encoding;
    std::vector<std::size_t> places;
  };
  const std::vector<Row> rows = {{{.quant = Quant::kInt8, .block = 64}, {0}},
                                 {{.quant = Quant::kInt4, .block = 32}, {0}},
                                 {{.quant = Quant::kQ4K, .block = 256}, {0, 2}},
                                 {{.quant = Quant::kQ5K, .block = 256}, {0, 2}},
                                 {{.quant = Quant::kQ6K, .block = 256}, {208}}};
  for (const auto& [encoding, places] : rows) {
    const auto block = static_cast<std::size_t>(encoding.block_bytes());
    std::vector<std::byte> bytes(3 * block, std::byte{0xFF});  // As f16: not a number.
    const auto set = [&](std::size_t at, unsigned bits) {
      bytes[at] = static_cast<std::byte>(bits & 0xFFu);
      bytes[at + 1] = static_cast<std::byte>(bits >> 8);
    };
    for (std::size_t i = 0; i < 3; ++i) {
      for (const std::size_t place : places) set(i * block + place, 0x7BFFu);  // 65504.
    }
    expect(count_non_finite_scales(bytes, encoding), 0, 0, -1);
    for (const std::size_t place : places) {
      set(block + place, 0xFC00u);
      set(2 * block + place, 0x7C01u);
      expect(count_non_finite_scales(bytes, encoding), 1, 1, 1);
      set(block + place, 0);
      set(2 * block + place, 0);
    }
  }
}

// Weights in panels, of any format, are looked at as the values that they stand for.
TEST(NonFinite, PackedModelsAreChecked) {
  for (const WeightFormat& format :
       {WeightFormat{}, WeightFormat{.dtype = DType::kBF16}, WeightFormat{.quant = Quant::kInt8}}) {
    Transformer model = test::lively_model(test::llama_config(), test::cpu(1));
    Transformer packed = model;
    ASSERT_TRUE(packed.prepack(format));
    EXPECT_TRUE(check_finite(packed)) << check_finite(packed).error().message();
    const std::string name = "model.layers.1.mlp.up_proj.weight";
    const auto good = model.weight(name);
    ASSERT_TRUE(good);
    Tensor bad = *good->clone_to();
    ASSERT_FALSE(bad.mutable_values<float>()->empty());
    bad.mutable_values<float>()->front() = kInf;
    ASSERT_TRUE(model.replace_weight(name, bad));
    ASSERT_TRUE(model.prepack(format));
    const Status found = check_finite(model);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code(), ErrorCode::kNonFinite);
    EXPECT_NE(found.error().message().find(name), std::string::npos);
  }
}

}  // namespace
}  // namespace volta
