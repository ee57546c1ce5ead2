// DeviceBuffer: ownership, ranges, and copies on the host and on a device.
#include "tensor/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <limits>
#include <utility>

#include "base/memory.h"
#include "support/temp_dir.h"
#include "tensor/fake_memory.h"
#include "tensor/tensor.h"

namespace volta {
namespace {

using ::testing::HasSubstr;

constexpr std::array<std::byte, 4> kBytes = {std::byte{1}, std::byte{2}, std::byte{3},
                                             std::byte{4}};

TEST(DeviceBuffer, HostMemoryIsAlignedAndReadable) {
  auto buffer = DeviceBuffer::allocate(host_memory(), 100);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(buffer->bytes(), 100);
  EXPECT_TRUE(buffer->host_accessible());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
  ASSERT_TRUE(buffer->write(96, kBytes));
  std::array<std::byte, 4> back{};
  ASSERT_TRUE(buffer->read(96, back));
  EXPECT_EQ(back, kBytes);
  const auto bytes = buffer->host_bytes(97, 2);
  ASSERT_TRUE(bytes);
  EXPECT_EQ((*bytes)[0], std::byte{2});
  EXPECT_EQ(bytes->data(), buffer->at_offset(97));
}

TEST(DeviceBuffer, RangesAreChecked) {
  auto buffer = DeviceBuffer::allocate(host_memory(), 8);
  ASSERT_TRUE(buffer);
  const auto outside = buffer->write(5, kBytes);
  ASSERT_FALSE(outside);
  EXPECT_THAT(outside.error().message(),
              HasSubstr("4 bytes at offset 5 are outside a buffer of 8 bytes"));
  std::array<std::byte, 4> back{};
  EXPECT_FALSE(buffer->read(-1, back));
  EXPECT_FALSE(buffer->host_bytes(0, 9));
  EXPECT_FALSE(buffer->host_bytes(0, -1));
  EXPECT_FALSE(buffer->host_bytes(std::numeric_limits<std::int64_t>::max(), 4));
  EXPECT_TRUE(buffer->host_bytes(8, 0));
}

// Filling and copying within a device goes through its owner, and nothing passes by the host.
TEST(DeviceBuffer, FillsAndCopiesWhereTheBytesLie) {
  const auto fake = std::make_shared<FakeMemory>();
  for (const std::shared_ptr<MemoryOwner>& owner :
       {host_memory(), std::shared_ptr<MemoryOwner>(fake)}) {
    auto a = DeviceBuffer::allocate(owner, 8), b = DeviceBuffer::allocate(owner, 8);
    ASSERT_TRUE(a && b);
    ASSERT_TRUE(a->fill(0, 8, std::byte{7}));
    ASSERT_TRUE(a->write(2, kBytes));
    ASSERT_TRUE(b->fill(0, 8, std::byte{0}));
    ASSERT_TRUE(b->copy_from(1, *a, 2, 4));
    EXPECT_TRUE(b->copy_from(8, *a, 8, 0));
    EXPECT_TRUE(a->fill(8, 0, std::byte{9}));
    std::array<std::byte, 8> back{};
    ASSERT_TRUE(b->read(0, back));
    EXPECT_EQ(back, (std::array<std::byte, 8>{std::byte{0}, std::byte{1}, std::byte{2},
                                              std::byte{3}, std::byte{4}}));
    ASSERT_TRUE(a->read(0, back));
    EXPECT_EQ(back[1], std::byte{7});
    EXPECT_EQ(back[7], std::byte{7});
    for (const Status& refused : {a->fill(5, 4, std::byte{0}), a->fill(-1, 1, std::byte{0}),
                                  b->copy_from(5, *a, 0, 4), b->copy_from(0, *a, 5, 4)}) {
      ASSERT_FALSE(refused);
      EXPECT_THAT(refused.error().message(), HasSubstr("outside a buffer of 8 bytes"));
    }
    const Status itself = a->copy_from(0, *a, 4, 4);
    ASSERT_FALSE(itself);
    EXPECT_THAT(itself.error().message(), HasSubstr("two blocks"));
  }
  EXPECT_EQ(fake->fills, 2);
  EXPECT_EQ(fake->copies_within, 1);
  auto here = DeviceBuffer::allocate(host_memory(), 8), there = DeviceBuffer::allocate(fake, 8);
  ASSERT_TRUE(here && there);
  EXPECT_FALSE(here->copy_from(0, *there, 0, 8));
  fake->fail_copy = true;
  EXPECT_FALSE(there->fill(0, 8, std::byte{0}));
}

TEST(DeviceBuffer, AMappedFileIsReadInPlace) {
  const test::TempDir dir;
  std::ofstream(dir.file("a")) << "0123456789abcdef";
  auto mapped = MappedFile::open(dir.file("a"));
  ASSERT_TRUE(mapped);
  const auto file = std::make_shared<const MappedFile>(*std::move(mapped));
  auto buffer = DeviceBuffer::map(file, 8, 4);
  ASSERT_TRUE(buffer) << buffer.error().message();
  EXPECT_EQ(buffer->bytes(), 4);
  EXPECT_TRUE(buffer->host_accessible());
  EXPECT_EQ(buffer->data(), file->bytes().data() + 8);
  EXPECT_EQ(as_text(*buffer->host_bytes(1, 2)), "9a");
  std::array<std::byte, 4> back{};
  ASSERT_TRUE(buffer->read(0, back));
  EXPECT_EQ(as_text(back), "89ab");
  const auto written = buffer->write(0, kBytes);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message(), HasSubstr("can only be read"));
  EXPECT_FALSE(buffer->owner()->writable());
  EXPECT_FALSE(buffer->fill(0, 1, std::byte{0}));
  EXPECT_FALSE(DeviceBuffer::allocate(buffer->owner(), 8));
  EXPECT_FALSE(DeviceBuffer::map(file, 8, 9));
  EXPECT_FALSE(DeviceBuffer::map(file, -1, 2));
  EXPECT_EQ(DeviceBuffer::map(file, 16, 0)->data(), nullptr);

  Tensor tensor = *Tensor::from_buffer(std::make_shared<DeviceBuffer>(*std::move(buffer)), 0,
                                       {DType::kU8, Shape(4)});
  EXPECT_EQ((*tensor.values<std::uint8_t>())[3], 'b');
  const auto mutable_values = tensor.mutable_values<std::uint8_t>();
  ASSERT_FALSE(mutable_values);
  EXPECT_THAT(mutable_values.error().message(), HasSubstr("u8[4] lies in a mapped file"));
}

TEST(DeviceBuffer, EmptyBuffersOwnNothing) {
  auto memory = std::make_shared<FakeMemory>();
  auto buffer = DeviceBuffer::allocate(memory, 0);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(memory->live, 0);
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_EQ(buffer->at_offset(0), nullptr);
  EXPECT_TRUE(buffer->write(0, {}));
  EXPECT_TRUE(buffer->read(0, {}));
  EXPECT_TRUE(DeviceBuffer().host_accessible());
}

TEST(DeviceBuffer, BadRequestsAreErrors) {
  const auto negative = DeviceBuffer::allocate(host_memory(), -1);
  ASSERT_FALSE(negative);
  EXPECT_EQ(negative.error().code(), ErrorCode::kInvalidArgument);
  const auto nobody = DeviceBuffer::allocate(nullptr, 1);
  ASSERT_FALSE(nobody);
  EXPECT_THAT(nobody.error().message(), HasSubstr("without a memory owner"));
  const auto absurd = DeviceBuffer::allocate(host_memory(), std::int64_t{1} << 46);
  ASSERT_FALSE(absurd);
  EXPECT_EQ(absurd.error().code(), ErrorCode::kOutOfMemory);
}

TEST(DeviceBuffer, MovesFreeExactlyOnce) {
  auto memory = std::make_shared<FakeMemory>();
  {
    auto first = DeviceBuffer::allocate(memory, 16);
    auto second = DeviceBuffer::allocate(memory, 32);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(memory->live, 2);
    DeviceBuffer moved = std::move(*first);
    EXPECT_EQ(moved.bytes(), 16);
    moved = std::move(*second);
    EXPECT_EQ(memory->live, 1);
    EXPECT_EQ(moved.bytes(), 32);
    DeviceBuffer& self = moved;
    moved = std::move(self);
    EXPECT_EQ(moved.bytes(), 32);
    EXPECT_EQ(moved.owner(), memory);
  }
  EXPECT_EQ(memory->live, 0);
}

TEST(DeviceBuffer, DeviceMemoryIsClosedToTheHost) {
  auto memory = std::make_shared<FakeMemory>();
  auto buffer = DeviceBuffer::allocate(memory, 4);
  ASSERT_TRUE(buffer);
  EXPECT_FALSE(buffer->host_accessible());
  const auto bytes = buffer->host_bytes(0, 4);
  ASSERT_FALSE(bytes);
  EXPECT_THAT(bytes.error().message(), HasSubstr("copy it with read()"));
  ASSERT_TRUE(buffer->write(0, kBytes));
  std::array<std::byte, 4> back{};
  ASSERT_TRUE(buffer->read(0, back));
  EXPECT_EQ(back, kBytes);
  memory->fail_copy = true;
  EXPECT_EQ(buffer->write(0, kBytes).error().code(), ErrorCode::kDevice);
  EXPECT_EQ(buffer->read(0, back).error().code(), ErrorCode::kDevice);
  memory->fail_allocate = true;
  EXPECT_EQ(DeviceBuffer::allocate(memory, 4).error().code(), ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace volta
