// DeviceBuffer, the owner of host memory, and typed views of host bytes. Inside the raw-memory
// fence: this file makes every address that a tensor returns.
#include "tensor/buffer.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/memory.h"
#include "tensor/tensor.h"

namespace volta {

namespace {

class HostMemory final : public MemoryOwner {
 public:
  Result<void*> allocate(std::int64_t bytes) override {
    VOLTA_TRY(AlignedBytes block, try_allocate(bytes));
    return block.release();
  }
  // SAFETY: `data` came from allocate(), whose blocks are freed with std::free.
  void deallocate(void* data, std::int64_t) override { std::free(data); }
  bool host_accessible() const override { return true; }
  // SAFETY: DeviceBuffer has checked that both sides hold that many bytes.
  Status copy_from_host(void* destination, std::span<const std::byte> source) override {
    std::memmove(destination, source.data(), source.size());
    return {};
  }
  Status copy_to_host(std::span<std::byte> destination, const void* source) override {
    std::memmove(destination.data(), source, destination.size());
    return {};
  }
  Status copy_within(void* destination, const void* source, std::int64_t bytes) override {
    std::memcpy(destination, source, static_cast<std::size_t>(bytes));
    return {};
  }
  Status fill(void* destination, std::byte value, std::int64_t bytes) override {
    std::memset(destination, std::to_integer<int>(value), static_cast<std::size_t>(bytes));
    return {};
  }
};

// The owner of a mapped file's memory; it shares ownership of the mapping.
class FileMemory final : public MemoryOwner {
 public:
  explicit FileMemory(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}
  Result<void*> allocate(std::int64_t) override { return read_only(); }
  void deallocate(void*, std::int64_t) override {}
  bool host_accessible() const override { return true; }
  bool writable() const override { return false; }
  Status copy_from_host(void*, std::span<const std::byte>) override { return read_only(); }
  Status copy_within(void*, const void*, std::int64_t) override { return read_only(); }
  Status fill(void*, std::byte, std::int64_t) override { return read_only(); }
  // SAFETY: DeviceBuffer has checked that both sides hold that many bytes.
  Status copy_to_host(std::span<std::byte> destination, const void* source) override {
    std::memcpy(destination.data(), source, destination.size());
    return {};
  }

 private:
  static std::unexpected<Error> read_only() {
    return fail(ErrorCode::kInvalidArgument, "a mapped file can only be read");
  }

  std::shared_ptr<const MappedFile> file_;
};

// kInvalidArgument unless [offset, offset + length) lies within `bytes`.
Status check_range(std::int64_t offset, std::int64_t length, std::int64_t bytes) {
  if (offset >= 0 && length >= 0 && length <= bytes && offset <= bytes - length) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{} bytes at offset {} are outside a buffer of {} bytes", length, offset, bytes));
}

}  // namespace

std::shared_ptr<MemoryOwner> host_memory() {
  static const std::shared_ptr<MemoryOwner> owner = std::make_shared<HostMemory>();
  return owner;
}

Result<DeviceBuffer> DeviceBuffer::allocate(std::shared_ptr<MemoryOwner> owner,
                                            std::int64_t bytes) {
  if (owner == nullptr || bytes < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot allocate {} bytes{}", bytes,
                            owner == nullptr ? " without a memory owner" : ""));
  }
  DeviceBuffer buffer;
  if (bytes > 0) {
    VOLTA_TRY(buffer.data_, owner->allocate(bytes));
  }
  buffer.owner_ = std::move(owner);
  buffer.bytes_ = bytes;
  return buffer;
}

Result<DeviceBuffer> DeviceBuffer::map(std::shared_ptr<const MappedFile> file, std::int64_t offset,
                                       std::int64_t bytes) {
  VOLTA_TRY(check_range(offset, bytes, file->size()));
  DeviceBuffer buffer;
  // SAFETY: the address is inside the mapping (checked above), and FileMemory keeps the mapping
  // alive. Nothing writes to it: FileMemory rejects all writes, devices reject writes to the memory
  // of other owners, and Tensor::mutable_values rejects read-only memory.
  const std::byte* data = file->bytes().data() + offset;
  buffer.data_ = bytes == 0 ? nullptr : const_cast<std::byte*>(data);
  buffer.owner_ = std::make_shared<FileMemory>(std::move(file));
  buffer.bytes_ = bytes;
  return buffer;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : owner_(std::move(other.owner_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this != &other) {
    release();
    owner_ = std::move(other.owner_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

DeviceBuffer::~DeviceBuffer() { release(); }

void DeviceBuffer::release() {
  if (data_ != nullptr) owner_->deallocate(data_, bytes_);
}

// SAFETY: the caller keeps `offset` within the block, and an empty buffer only has offset 0.
void* DeviceBuffer::at_offset(std::int64_t offset) const {
  return data_ == nullptr ? nullptr : static_cast<std::byte*>(data_) + offset;
}

Result<std::span<std::byte>> DeviceBuffer::host_bytes(std::int64_t offset,
                                                      std::int64_t length) const {
  if (!host_accessible()) {
    return fail(ErrorCode::kInvalidArgument,
                "the host cannot touch a device's memory; copy it with read() first");
  }
  VOLTA_TRY(check_range(offset, length, bytes_));
  // SAFETY: the range is within the block (checked above), which the host may access.
  return std::span(static_cast<std::byte*>(at_offset(offset)), static_cast<std::size_t>(length));
}

Status DeviceBuffer::write(std::int64_t offset, std::span<const std::byte> source) {
  VOLTA_TRY(check_range(offset, std::ssize(source), bytes_));
  if (source.empty()) return {};
  return owner_->copy_from_host(at_offset(offset), source);
}

Status DeviceBuffer::read(std::int64_t offset, std::span<std::byte> destination) const {
  VOLTA_TRY(check_range(offset, std::ssize(destination), bytes_));
  if (destination.empty()) return {};
  return owner_->copy_to_host(destination, at_offset(offset));
}

Status DeviceBuffer::submit_read(std::int64_t offset, std::span<std::byte> destination) const {
  VOLTA_TRY(check_range(offset, std::ssize(destination), bytes_));
  if (destination.empty()) return {};
  return owner_->submit_copy_to_host(destination, at_offset(offset));
}

Status DeviceBuffer::fill(std::int64_t offset, std::int64_t length, std::byte value) {
  VOLTA_TRY(check_range(offset, length, bytes_));
  if (length == 0) return {};
  return owner_->fill(at_offset(offset), value, length);
}

Status DeviceBuffer::copy_from(std::int64_t offset, const DeviceBuffer& source,
                               std::int64_t source_offset, std::int64_t length) {
  VOLTA_TRY(check_range(offset, length, bytes_));
  VOLTA_TRY(check_range(source_offset, length, source.bytes_));
  if (length == 0) return {};
  if (owner_ != source.owner_ || data_ == source.data_) {
    return fail(ErrorCode::kInvalidArgument,
                "a copy within a device needs two blocks of that device's memory");
  }
  return owner_->copy_within(at_offset(offset), source.at_offset(source_offset), length);
}

// SAFETY: the caller has checked that the bytes are whole, aligned elements. Every T below is
// trivially copyable, and every bit pattern is a valid T.
template <typename T>
std::span<T> typed_span(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

#define VOLTA_TYPED_SPAN(T)                                  \
  template std::span<T> typed_span<T>(std::span<std::byte>); \
  template std::span<const T> typed_span<const T>(std::span<std::byte>);
VOLTA_TYPED_SPAN(float)
VOLTA_TYPED_SPAN(std::int8_t)
VOLTA_TYPED_SPAN(std::uint8_t)
VOLTA_TYPED_SPAN(std::uint16_t)
VOLTA_TYPED_SPAN(std::int32_t)
VOLTA_TYPED_SPAN(std::int64_t)
#undef VOLTA_TYPED_SPAN

}  // namespace volta
