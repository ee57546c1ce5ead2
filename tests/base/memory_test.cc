#include "base/memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

namespace volta {
namespace {

uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

TEST(AllocateTest, GivesAlignedWritableBytes) {
  for (const int64_t alignment : {8, 64, 4096}) {
    for (const int64_t size : {int64_t{1}, int64_t{63}, int64_t{1000}, kHugePageThreshold + 5}) {
      Result<AlignedBytes> block = try_allocate_zeroed(size, alignment);
      ASSERT_TRUE(block) << block.error().message();
      EXPECT_EQ(block->size(), size);
      EXPECT_EQ(block->span().size(), static_cast<size_t>(size));
      EXPECT_EQ(address(block->data()) % static_cast<uintptr_t>(alignment), 0u);
      EXPECT_EQ(block->span().back(), std::byte{0});
      block->span().back() = std::byte{7};
      EXPECT_EQ(std::as_const(*block).span().back(), std::byte{7});
    }
  }
}

TEST(AllocateTest, ZeroBytesIsEmptyAndFine) {
  const Result<AlignedBytes> block = try_allocate(0);
  ASSERT_TRUE(block);
  EXPECT_EQ(block->size(), 0);
  EXPECT_EQ(block->data(), nullptr);
  EXPECT_TRUE(block->span().empty());
}

TEST(AllocateTest, RefusesWhatCannotBe) {
  EXPECT_EQ(try_allocate(-1).error().code(), ErrorCode::kInvalidArgument);
  for (const int64_t alignment : {-64, 0, 4, 48, 1 << 30}) {
    EXPECT_EQ(try_allocate(16, alignment).error().code(), ErrorCode::kInvalidArgument) << alignment;
  }
  for (const int64_t size : {int64_t{1} << 50, std::numeric_limits<int64_t>::max()}) {
    const Result<AlignedBytes> block = try_allocate(size);
    ASSERT_FALSE(block);
    EXPECT_EQ(block.error().code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(block.error().message().find(std::to_string(size)), std::string::npos);
  }
}

TEST(AllocateTest, MovesLeaveNothingBehind) {
  AlignedBytes a = *try_allocate_zeroed(100);
  const std::byte* data = a.data();
  AlignedBytes b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.size(), 0);  // NOLINT(bugprone-use-after-move): the state is documented.
  AlignedBytes c = *try_allocate(7);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  AlignedBytes& alias = c;
  c = std::move(alias);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.size(), 100);
}

TEST(AllocateTest, ReleaseGivesUpOwnership) {
  AlignedBytes block = *try_allocate(100);
  std::byte* data = block.release();
  EXPECT_EQ(block.data(), nullptr);
  EXPECT_EQ(block.size(), 0);
  std::free(data);
}

TEST(HeapArrayTest, HoldsZeros) {
  Result<HeapArray<double>> array = try_make_array<double>(1000);
  ASSERT_TRUE(array);
  EXPECT_EQ(array->size(), 1000);
  EXPECT_FALSE(array->empty());
  for (const double v : std::as_const(*array)) EXPECT_EQ(v, 0.0);
  (*array)[999] = 2.5;
  EXPECT_EQ(std::as_const(*array)[999], 2.5);
  EXPECT_EQ(array->span().back(), 2.5);
  EXPECT_EQ(array->data(), array->span().data());
  for (double& v : *array) v = 1;
  HeapArray<double> moved = *std::move(array);
  EXPECT_EQ(moved[0], 1.0);
  EXPECT_EQ(std::as_const(moved).data(), moved.data());
  EXPECT_TRUE(HeapArray<int>().empty());
}

TEST(HeapArrayTest, RefusesWhatCannotBe) {
  EXPECT_EQ(try_make_array<float>(-3).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(try_make_array<float>(std::numeric_limits<int64_t>::max() / 2).error().code(),
            ErrorCode::kOutOfMemory);
  EXPECT_EQ(try_make_array<float>(int64_t{1} << 50).error().code(), ErrorCode::kOutOfMemory);
}

TEST(AsSpanTest, SeesValuesInBytes) {
  AlignedBytes block = *try_allocate_zeroed(16);
  Result<std::span<int32_t>> ints = as_span<int32_t>(block.span());
  ASSERT_TRUE(ints);
  ASSERT_EQ(ints->size(), 4u);
  (*ints)[1] = 0x01020304;
  EXPECT_EQ(block.span()[4], std::byte{4});
  const Result<std::span<const int32_t>> view = as_span<int32_t>(std::as_const(block).span());
  ASSERT_TRUE(view);
  EXPECT_EQ((*view)[1], 0x01020304);
  EXPECT_TRUE(as_span<double>(std::span<std::byte>())->empty());
}

TEST(AsSpanTest, ChecksSizeAndAlignment) {
  AlignedBytes block = *try_allocate(16);
  EXPECT_EQ(as_span<int32_t>(block.span().first(15)).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(as_span<int32_t>(block.span().subspan(2, 8)).error().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(as_span<int32_t>(block.span().subspan(4, 8)));
  EXPECT_TRUE(as_span<uint8_t>(block.span().subspan(3, 5)));
}

TEST(AsSpanTest, TextAndObjectsAreBytes) {
  EXPECT_EQ(as_text(as_bytes("abc")), "abc");
  EXPECT_EQ(as_bytes("abc").size(), 3u);
  const uint16_t value = 0x1234;
  EXPECT_EQ(object_bytes(value)[0], std::byte{0x34});
  EXPECT_EQ(object_bytes(value)[1], std::byte{0x12});
}

}  // namespace
}  // namespace volta
