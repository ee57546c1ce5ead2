// DeviceBuffer: RAII over memory that some device owns. This pair of files is inside the raw-memory
// fence: everything above it sees spans and tensors only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/memory.h"
#include "base/result.h"

namespace [[gnu::visibility("default")]] volta {

/// Who allocates, frees and copies a device's memory. Devices implement it; it must be safe to call
/// from several threads.
class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;
  /// `bytes` > 0, aligned to at least 64 bytes, contents undefined. kOutOfMemory when there is
  /// none.
  virtual Result<void*> allocate(std::int64_t bytes) = 0;
  virtual void deallocate(void* data, std::int64_t bytes) = 0;
  /// True when the host may read and write the memory through its address.
  virtual bool host_accessible() const = 0;
  /// False when the memory may only be read.
  virtual bool writable() const { return true; }
  // Addresses below are this owner's, and the caller has checked every size. What writes this
  // memory takes effect in the order of the calls, together with what the device was given to run,
  // and need not be waited for: an error may come from a later call instead.

  /// Copies host bytes here. `source` may be changed as soon as this returns.
  virtual Status copy_from_host(void* destination, std::span<const std::byte> source) = 0;
  /// Waits for everything before it and copies to the host.
  virtual Status copy_to_host(std::span<std::byte> destination, const void* source) = 0;
  /// Copies `bytes` > 0 from one place here to another; the two do not overlap.
  virtual Status copy_within(void* destination, const void* source, std::int64_t bytes) = 0;
  /// Sets `bytes` > 0 bytes to `value`.
  virtual Status fill(void* destination, std::byte value, std::int64_t bytes) = 0;
};

/// The process's own memory.
std::shared_ptr<MemoryOwner> host_memory();

/// A block of one owner's memory; move-only, freed on destruction.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// Bytes [offset, offset + bytes) of a mapped file, without a copy: read-only memory of the host.
  /// kInvalidArgument when the range is not inside the file.
  static Result<DeviceBuffer> map(std::shared_ptr<const MappedFile> file, std::int64_t offset,
                                  std::int64_t bytes);
  /// A block of `bytes` >= 0 (0 gives an empty buffer that owns nothing).
  static Result<DeviceBuffer> allocate(std::shared_ptr<MemoryOwner> owner, std::int64_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer();

  std::int64_t bytes() const { return bytes_; }
  /// The raw address, for devices and kernels; null when empty.
  void* data() const { return data_; }
  /// The address `offset` bytes in; the caller has checked 0 <= offset <= bytes().
  void* at_offset(std::int64_t offset) const;
  const std::shared_ptr<MemoryOwner>& owner() const { return owner_; }
  bool host_accessible() const { return owner_ == nullptr || owner_->host_accessible(); }

  /// Bytes [offset, offset + length) when the host may touch them; kInvalidArgument otherwise.
  Result<std::span<std::byte>> host_bytes(std::int64_t offset, std::int64_t length) const;
  /// Copies between host and buffer, range-checked.
  Status write(std::int64_t offset, std::span<const std::byte> source);
  Status read(std::int64_t offset, std::span<std::byte> destination) const;
  /// Sets `length` bytes to `value`, where they lie.
  Status fill(std::int64_t offset, std::int64_t length, std::byte value);
  /// Copies `length` bytes from another block of the same owner, without a way by the host.
  /// kInvalidArgument for another owner's block, and for this one.
  Status copy_from(std::int64_t offset, const DeviceBuffer& source, std::int64_t source_offset,
                   std::int64_t length);

 private:
  void release();

  std::shared_ptr<MemoryOwner> owner_;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace volta
