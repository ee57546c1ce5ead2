// Host memory whose size depends on input: aligned blocks whose allocation does not throw, typed
// arrays, file mappings, and checked casts between bytes and values. This is one of the few files
// that may use raw pointers. It knows nothing of tensors or devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/result.h"

// This header is inside the fence: clang's check of buffer use does not apply to it.
#if defined(__clang__)
#pragma clang unsafe_buffer_usage begin
#endif

struct stat;  // Of <sys/stat.h>. NOLINT(readability-identifier-naming)

namespace [[gnu::visibility("default")]] volta {

/// The default alignment of blocks: the size of a cache line and of an AVX-512 vector.
inline constexpr std::int64_t kDefaultAlignment = 64;

/// Blocks of at least this many bytes are aligned to huge pages, and the system is advised to use
/// huge pages for them.
inline constexpr std::int64_t kHugePageThreshold = std::int64_t{4} << 20;

/// A block of aligned host memory, freed when it goes out of scope. Move-only; empty by default.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  AlignedBytes(AlignedBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBytes& operator=(AlignedBytes&& other) noexcept;
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  ~AlignedBytes();

  /// The requested size in bytes.
  std::int64_t size() const { return size_; }
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::span<std::byte> span() { return {data_, static_cast<std::size_t>(size_)}; }
  std::span<const std::byte> span() const { return {data_, static_cast<std::size_t>(size_)}; }
  /// Gives up ownership: the caller must free the block with std::free.
  [[nodiscard]] std::byte* release() {
    size_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  friend Result<AlignedBytes> try_allocate(std::int64_t bytes, std::int64_t alignment);
  AlignedBytes(std::byte* data, std::int64_t size) : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

/// Allocates `bytes` bytes of uninitialised memory, aligned to `alignment` (a power of two from 8
/// to 2 MiB). Zero bytes give an empty block. kInvalidArgument for a negative size or an invalid
/// alignment, kOutOfMemory if the system has too little memory. A block larger than the memory and
/// swap that this process may use is an error at once, because a system with overcommit would grant
/// it and kill the process later.
Result<AlignedBytes> try_allocate(std::int64_t bytes, std::int64_t alignment = kDefaultAlignment);

/// The same, filled with zeros.
Result<AlignedBytes> try_allocate_zeroed(std::int64_t bytes,
                                         std::int64_t alignment = kDefaultAlignment);

/// A view of `bytes` as bytes.size() / sizeof(T) values of T. kInvalidArgument if the address is
/// not aligned for T or the size is not a multiple of sizeof(T).
template <typename T>
  requires(std::is_trivially_copyable_v<T>)
Result<std::span<T>> as_span(std::span<std::byte> bytes);
template <typename T>
  requires(std::is_trivially_copyable_v<T>)
Result<std::span<const T>> as_span(std::span<const std::byte> bytes);

/// Views of bytes as text and of text as bytes. Both are always valid, because char and std::byte
/// may alias any object.
std::string_view as_text(std::span<const std::byte> bytes);
std::span<const std::byte> as_bytes(std::string_view text);

/// The bytes of one trivially copyable object.
template <typename T>
  requires(std::is_trivially_copyable_v<T>)
std::span<const std::byte> object_bytes(const T& object) {
  return std::as_bytes(std::span<const T, 1>(&object, 1));
}

/// An array of n values of T on the heap, zero-initialised and 64-byte aligned. Move-only; empty by
/// default. It is like a std::vector of fixed size that reports a failed allocation as an Error.
template <typename T>
  requires(std::is_trivially_copyable_v<T>)
class HeapArray {
 public:
  HeapArray() = default;
  HeapArray(HeapArray&& other) noexcept = default;
  HeapArray& operator=(HeapArray&& other) noexcept = default;

  std::int64_t size() const { return bytes_.size() / static_cast<std::int64_t>(sizeof(T)); }
  bool empty() const { return bytes_.size() == 0; }
  T* data() { return span().data(); }
  const T* data() const { return span().data(); }
  // SAFETY: try_make_array made the block: aligned to 64, sized for whole T's, and all zero, which
  // is a value of every trivially copyable T.
  std::span<T> span() {
    return {reinterpret_cast<T*>(bytes_.data()), static_cast<std::size_t>(size())};
  }
  std::span<const T> span() const {
    return {reinterpret_cast<const T*>(bytes_.data()), static_cast<std::size_t>(size())};
  }
  T& operator[](std::int64_t i) { return span()[static_cast<std::size_t>(i)]; }
  const T& operator[](std::int64_t i) const { return span()[static_cast<std::size_t>(i)]; }
  auto begin() { return span().begin(); }
  auto end() { return span().end(); }
  auto begin() const { return span().begin(); }
  auto end() const { return span().end(); }

 private:
  template <typename U>
    requires(std::is_trivially_copyable_v<U>)
  friend Result<HeapArray<U>> try_make_array(std::int64_t n);
  explicit HeapArray(AlignedBytes bytes) : bytes_(std::move(bytes)) {}

  AlignedBytes bytes_;
};

/// Makes an array of n zeros. kInvalidArgument if n is negative, kOutOfMemory if there is not
/// enough memory.
template <typename T>
  requires(std::is_trivially_copyable_v<T>)
Result<HeapArray<T>> try_make_array(std::int64_t n);

/// A whole file mapped read-only into memory. Move-only; unmapped when it goes out of scope.
///
/// Other programs may truncate or change the file while it is mapped. A read past the new end
/// raises SIGBUS, which ends the process unless it has called install_mapping_guard(). With the
/// guard, the rest of the mapping reads as zeros. In both cases code that reads from a mapping must
/// call check_unchanged() before it uses the result.
class MappedFile {
 public:
  /// Maps the regular file at `path`. kNotFound if there is none, kInvalidFile for a folder or
  /// device, kIo if the system reports another error. An empty file gives empty bytes.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }
  /// Returns the memory of [offset, offset + length) to the system, except pages that are only
  /// partly inside the range. Later reads load these bytes from the file again. The range must be
  /// inside the file.
  void release(std::int64_t offset, std::int64_t length) const;
  /// kInvalidFile if the file was truncated, changed or replaced since open(). The bytes that were
  /// read may then be neither the old content nor the new. A file that was only removed is no
  /// error.
  Status check_unchanged() const;

 private:
  // Identifies a file and its state.
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::int64_t size = 0;
    std::int64_t modified_s = 0;
    std::int64_t modified_ns = 0;
    bool operator==(const Identity&) const = default;
  };
  static Identity identity_of(const struct stat& info);
  static constexpr int kNoSlot = -1;

  const std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
  std::string path_;
  Identity identity_;
  int guard_slot_ = kNoSlot;  ///< The mapping's slot in the guard's table.
};

/// Installs a handler of SIGBUS. With it, reads of a MappedFile past the end of a truncated file
/// give zeros, instead of ending the process. A program calls this once, when it starts. Signals
/// that no mapping has caused are passed on to the previous handler.
void install_mapping_guard();

// Implementation of the templates.

namespace internal {
/// An error unless `bytes` can be viewed as elements of the given size and alignment.
Status check_castable(std::span<const std::byte> bytes, std::size_t element_size,
                      std::size_t alignment);
/// n * element_size, or the error that try_make_array documents.
Result<std::int64_t> array_bytes(std::int64_t n, std::size_t element_size);
}  // namespace internal

template <typename T>
  requires(std::is_trivially_copyable_v<T>)
Result<std::span<T>> as_span(std::span<std::byte> bytes) {
  VOLTA_TRY(internal::check_castable(bytes, sizeof(T), alignof(T)));
  // SAFETY: aligned for T and a whole number of T's (checked above), and T is trivially copyable,
  // so that any storage of its size may hold one.
  return std::span<T>(reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T));
}

template <typename T>
  requires(std::is_trivially_copyable_v<T>)
Result<std::span<const T>> as_span(std::span<const std::byte> bytes) {
  VOLTA_TRY(internal::check_castable(bytes, sizeof(T), alignof(T)));
  // SAFETY: as above.
  return std::span<const T>(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
}

template <typename T>
  requires(std::is_trivially_copyable_v<T>)
Result<HeapArray<T>> try_make_array(std::int64_t n) {
  static_assert(alignof(T) <= static_cast<std::size_t>(kDefaultAlignment));
  VOLTA_TRY(const std::int64_t size, internal::array_bytes(n, sizeof(T)));
  VOLTA_TRY(AlignedBytes bytes, try_allocate_zeroed(size));
  return HeapArray<T>(std::move(bytes));
}

}  // namespace volta

#if defined(__clang__)
#pragma clang unsafe_buffer_usage end
#endif
