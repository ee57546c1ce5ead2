// Tensor: a contiguous window into a shared buffer of a device, with a type and a shape. A copy of
// a Tensor shares its memory. It knows nothing of ops, graphs or kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "base/result.h"
#include "tensor/buffer.h"
#include "tensor/spec.h"
#include "tensor/view.h"

namespace [[gnu::visibility("default")]] volta {

class Tensor {
 public:
  /// An empty tensor: f32, shape [0], no memory.
  Tensor() : spec_{DType::kF32, Shape(0)} {}

  /// Uninitialised memory of `owner` (the host's by default). Checks the spec before allocating.
  static Result<Tensor> empty(const TensorSpec& spec,
                              const std::shared_ptr<MemoryOwner>& owner = host_memory());
  /// The same, filled with zero bytes.
  static Result<Tensor> zeros(const TensorSpec& spec,
                              const std::shared_ptr<MemoryOwner>& owner = host_memory());
  /// A host tensor with a copy of `values`; kInvalidArgument if their number is not that of the
  /// shape.
  template <typename T>
  static Result<Tensor> from_values(const Shape& shape, std::span<const T> values);
  /// A window into an existing buffer. `offset` is in bytes; the range is checked.
  static Result<Tensor> from_buffer(std::shared_ptr<DeviceBuffer> buffer, std::int64_t offset,
                                    const TensorSpec& spec);

  const TensorSpec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  DType dtype() const { return spec_.dtype; }
  std::int64_t elements() const { return spec_.shape.elements(); }
  std::int64_t bytes() const { return spec_.bytes(); }
  bool host_accessible() const { return buffer_ == nullptr || buffer_->host_accessible(); }
  const std::shared_ptr<DeviceBuffer>& buffer() const { return buffer_; }
  std::int64_t offset() const { return offset_; }

  /// The view of this tensor for kernels. It is valid while a tensor of the same buffer exists.
  View view() const;

  /// The elements in host memory. kInvalidArgument for another type, an encoded tensor, or memory
  /// that the host cannot access; mutable_values() also for memory that is read-only. The span is
  /// valid while the buffer exists.
  template <typename T>
  Result<std::span<const T>> values() const;
  template <typename T>
  Result<std::span<T>> mutable_values();

  /// The raw bytes, of any type and encoding. kInvalidArgument if the host cannot access the
  /// memory. Callers must not write to them if the memory is read-only.
  Result<std::span<std::byte>> host_bytes() const;
  /// Copy all bytes from or to the host. The sizes must be equal.
  Status write_bytes(std::span<const std::byte> source);
  Status read_bytes(std::span<std::byte> destination) const;
  /// Sets every byte to zero, on the device.
  Status set_zero();
  template <typename T>
  Status write(std::span<const T> source) {
    VOLTA_TRY(check_type(DTypeOf<T>::value));
    return write_bytes(std::as_bytes(source));
  }
  template <typename T>
  Status read(std::span<T> destination) const {
    VOLTA_TRY(check_type(DTypeOf<T>::value));
    return read_bytes(std::as_writable_bytes(destination));
  }

  /// The same memory with another shape, which must have the same number of elements.
  Result<Tensor> reshape(const Shape& shape) const;
  /// Rows [begin, end) of the first axis, sharing the memory.
  Result<Tensor> slice(std::int64_t begin, std::int64_t end) const;
  /// A copy in `owner`'s memory.
  Result<Tensor> clone_to(const std::shared_ptr<MemoryOwner>& owner = host_memory()) const;

 private:
  Status check_plain() const;
  Status check_writable() const;
  Status check_type(DType wanted) const;

  TensorSpec spec_;
  std::shared_ptr<DeviceBuffer> buffer_;
  std::int64_t offset_ = 0;
};

/// Typed access to host bytes; defined in tensor/buffer.cc, inside the raw-memory fence.
/// The caller has checked size and alignment (buffers are 64-byte aligned, windows are aligned to
/// their element).
template <typename T>
std::span<T> typed_span(std::span<std::byte> bytes);

template <typename T>
Result<Tensor> Tensor::from_values(const Shape& shape, std::span<const T> values) {
  VOLTA_TRY(Tensor tensor, empty({DTypeOf<T>::value, shape}));
  VOLTA_TRY(tensor.write(values));
  return tensor;
}

template <typename T>
Result<std::span<const T>> Tensor::values() const {
  VOLTA_TRY(check_type(DTypeOf<T>::value));
  VOLTA_TRY(auto bytes, host_bytes());
  return typed_span<T>(bytes);
}

template <typename T>
Result<std::span<T>> Tensor::mutable_values() {
  VOLTA_TRY(check_type(DTypeOf<T>::value));
  VOLTA_TRY(check_writable());
  VOLTA_TRY(auto bytes, host_bytes());
  return typed_span<T>(bytes);
}

}  // namespace volta
