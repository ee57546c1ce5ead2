// Aligned blocks and checked casts.
#include "base/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "base/arithmetic.h"
#include "base/cpu.h"

namespace volta {

namespace {

constexpr std::int64_t kHugePageBytes = std::int64_t{2} << 20;

std::unexpected<Error> out_of_memory(std::int64_t bytes) {
  return fail(ErrorCode::kOutOfMemory,
              fmt::format("cannot allocate {} bytes ({:.1f} GiB): not enough memory; choose a "
                          "smaller model, batch or context",
                          bytes, static_cast<double>(bytes) / static_cast<double>(1 << 30)));
}

}  // namespace

AlignedBytes& AlignedBytes::operator=(AlignedBytes&& other) noexcept {
  if (this != &other) {
    std::free(data_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

// SAFETY: data_ is null or came from aligned_alloc and is owned by this object alone.
AlignedBytes::~AlignedBytes() { std::free(data_); }

Result<AlignedBytes> try_allocate(std::int64_t bytes, std::int64_t alignment) {
  if (bytes < 0) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("cannot allocate {} bytes", bytes));
  }
  if (alignment < 8 || alignment > kHugePageBytes ||
      !std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("alignment {} is not a power of two from 8 to {}", alignment, kHugePageBytes));
  }
  if (bytes == 0) return AlignedBytes();
  const bool huge = bytes >= kHugePageThreshold;
  if (huge) {
    // Linux gives out more memory than there is, and ends processes that use it.
    if (bytes > memory_left_bytes()) return out_of_memory(bytes);
    alignment = kHugePageBytes;
  }
  // SAFETY: aligned_alloc needs a size that is a multiple of the alignment. `bytes` is bounded by
  // the machine's memory or by the threshold, so such a multiple exists.
  const std::int64_t rounded = round_up(bytes, alignment);
  void* data =
      std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(rounded));
  if (data == nullptr) return out_of_memory(bytes);
  // This is only advice: without transparent huge pages in the kernel it fails without harm.
  if (huge) madvise(data, static_cast<std::size_t>(rounded), MADV_HUGEPAGE);
  return AlignedBytes(static_cast<std::byte*>(data), bytes);
}

Result<AlignedBytes> try_allocate_zeroed(std::int64_t bytes, std::int64_t alignment) {
  VOLTA_TRY(AlignedBytes block, try_allocate(bytes, alignment));
  std::ranges::fill(block.span(), std::byte{0});
  return block;
}

// SAFETY: char and std::byte may alias any object, and both views keep the length.
std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text));
}

namespace internal {

Status check_castable(std::span<const std::byte> bytes, std::size_t element_size,
                      std::size_t alignment) {
  if (bytes.size() % element_size != 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} bytes are no whole number of {}-byte values", bytes.size(), element_size));
  }
  // SAFETY: the address is only compared, never dereferenced.
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignment != 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("bytes are not aligned to {} as {}-byte values need", alignment, element_size));
  }
  return {};
}

Result<std::int64_t> array_bytes(std::int64_t n, std::size_t element_size) {
  const std::int64_t size = static_cast<std::int64_t>(element_size);
  if (n < 0) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("cannot make an array of {} values", n));
  }
  if (n > std::numeric_limits<std::int64_t>::max() / size) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("an array of {} values of {} bytes does not fit in memory", n, size));
  }
  return n * size;
}

}  // namespace internal

}  // namespace volta
