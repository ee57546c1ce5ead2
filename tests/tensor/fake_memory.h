// A memory owner that plays a device: the host may not touch its memory, allocations are counted,
// and allocations and copies can be made to fail.
#pragma once

#include <cstdlib>
#include <cstring>

#include "tensor/buffer.h"

namespace volta {

class FakeMemory final : public MemoryOwner {
 public:
  Result<void*> allocate(std::int64_t bytes) override {
    if (fail_allocate) return fail(ErrorCode::kOutOfMemory, "fake: no memory");
    ++live;
    void* data = std::aligned_alloc(64, static_cast<std::size_t>((bytes + 63) / 64 * 64));
    std::memset(data, 0xAB, static_cast<std::size_t>(bytes));
    return data;
  }
  void deallocate(void* data, std::int64_t) override {
    --live;
    std::free(data);
  }
  bool host_accessible() const override { return false; }
  Status copy_from_host(void* destination, std::span<const std::byte> source) override {
    if (fail_copy) return fail(ErrorCode::kDevice, "fake: copy failed");
    std::memcpy(destination, source.data(), source.size());
    return {};
  }
  Status copy_to_host(std::span<std::byte> destination, const void* source) override {
    if (fail_copy) return fail(ErrorCode::kDevice, "fake: copy failed");
    std::memcpy(destination.data(), source, destination.size());
    return {};
  }

  Status copy_within(void* destination, const void* source, std::int64_t bytes) override {
    if (fail_copy) return fail(ErrorCode::kDevice, "fake: copy failed");
    ++copies_within;
    std::memcpy(destination, source, static_cast<std::size_t>(bytes));
    return {};
  }
  Status fill(void* destination, std::byte value, std::int64_t bytes) override {
    if (fail_copy) return fail(ErrorCode::kDevice, "fake: copy failed");
    ++fills;
    std::memset(destination, std::to_integer<int>(value), static_cast<std::size_t>(bytes));
    return {};
  }

  int copies_within = 0;
  int fills = 0;
  int live = 0;
  bool fail_allocate = false;
  bool fail_copy = false;
};

}  // namespace volta
