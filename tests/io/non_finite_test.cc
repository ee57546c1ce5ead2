#include "io/non_finite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

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

}  // namespace
}  // namespace volta
