// DeviceBuffer: RAII for memory that a device owns. buffer.h and buffer.cc are inside the
// raw-memory fence: code above them uses spans and tensors only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/memory.h"
#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// Allocates, frees and copies the memory of a device. Devices implement it; it must be safe to
/// call from several threads.
class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;
  /// Allocates `bytes` > 0 bytes, aligned to at least 64 bytes, with undefined contents.
  /// kOutOfMemory if there is not enough memory.
  virtual Result<void*> allocate(std::int64_t bytes) = 0;
  virtual void deallocate(void* data, std::int64_t bytes) = 0;
  /// Whether the host may read and write the memory through its address.
  virtual bool host_accessible() const = 0;
  /// Whether the memory may be written.
  virtual bool writable() const { return true; }
  // In the methods below, device addresses belong to this owner and the caller has checked every
  // size. Writes to this memory take effect in the order of the calls, which includes the work that
  // was submitted to the device. A write may return before it is complete, and a later call may
  // then report its error.

  /// Copies bytes from the host. `source` may be changed as soon as this returns.
  virtual Status copy_from_host(void* destination, std::span<const std::byte> source) = 0;
  /// Waits for all earlier work, then copies to the host.
  virtual Status copy_to_host(std::span<std::byte> destination, const void* source) = 0;
  /// Submits a copy to the host, which takes effect after all earlier work. `destination` must
  /// stay valid, and holds the bytes, only once a wait for the device's work has returned; that
  /// wait also reports an error of the copy. Memory that has no work of its own copies at once.
  virtual Status submit_copy_to_host(std::span<std::byte> destination, const void* source) {
    return copy_to_host(destination, source);
  }
  /// Copies `bytes` > 0 bytes within this memory; the two ranges do not overlap.
  virtual Status copy_within(void* destination, const void* source, std::int64_t bytes) = 0;
  /// Sets `bytes` > 0 bytes to `value`.
  virtual Status fill(void* destination, std::byte value, std::int64_t bytes) = 0;
};

/// The owner of ordinary host memory.
std::shared_ptr<MemoryOwner> host_memory();

/// A block of an owner's memory. Move-only; freed on destruction.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// A view of bytes [offset, offset + bytes) of a mapped file, without a copy; it is read-only
  /// host memory. kInvalidArgument if the range is not inside the file.
  static Result<DeviceBuffer> map(std::shared_ptr<const MappedFile> file, std::int64_t offset,
                                  std::int64_t bytes);
  /// Allocates a block of `bytes` >= 0 bytes. With 0 the buffer is empty.
  static Result<DeviceBuffer> allocate(std::shared_ptr<MemoryOwner> owner, std::int64_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer();

  std::int64_t bytes() const { return bytes_; }
  /// The raw address, for devices and kernels; null if the buffer is empty.
  void* data() const { return data_; }
  /// The address of byte `offset`; the caller has checked 0 <= offset <= bytes().
  void* at_offset(std::int64_t offset) const;
  const std::shared_ptr<MemoryOwner>& owner() const { return owner_; }
  bool host_accessible() const { return owner_ == nullptr || owner_->host_accessible(); }

  /// Bytes [offset, offset + length). kInvalidArgument if the host cannot access the memory or the
  /// range is not inside the buffer.
  Result<std::span<std::byte>> host_bytes(std::int64_t offset, std::int64_t length) const;
  /// Copy between the host and the buffer. The range is checked.
  Status write(std::int64_t offset, std::span<const std::byte> source);
  Status read(std::int64_t offset, std::span<std::byte> destination) const;
  /// As read(), but returns before the bytes are there: see MemoryOwner::submit_copy_to_host().
  Status submit_read(std::int64_t offset, std::span<std::byte> destination) const;
  /// Sets `length` bytes to `value`, on the device.
  Status fill(std::int64_t offset, std::int64_t length, std::byte value);
  /// Copies `length` bytes from another block of the same owner, without copying through the host.
  /// kInvalidArgument for a block of another owner, and for this block itself.
  Status copy_from(std::int64_t offset, const DeviceBuffer& source, std::int64_t source_offset,
                   std::int64_t length);

 private:
  void release();

  std::shared_ptr<MemoryOwner> owner_;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace volta
