// Tensor: windows into shared buffers. Every size is checked before memory is accessed.
#include "tensor/tensor.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

namespace volta {

Result<Tensor> Tensor::empty(const TensorSpec& spec, const std::shared_ptr<MemoryOwner>& owner) {
  VOLTA_TRY(check_spec(spec));
  VOLTA_TRY(DeviceBuffer buffer, DeviceBuffer::allocate(owner, spec.bytes()));
  Tensor tensor;
  tensor.spec_ = spec;
  tensor.buffer_ = std::make_shared<DeviceBuffer>(std::move(buffer));
  return tensor;
}

Result<Tensor> Tensor::zeros(const TensorSpec& spec, const std::shared_ptr<MemoryOwner>& owner) {
  VOLTA_TRY(Tensor tensor, empty(spec, owner));
  VOLTA_TRY(tensor.set_zero());
  return tensor;
}

Result<Tensor> Tensor::from_buffer(std::shared_ptr<DeviceBuffer> buffer, std::int64_t offset,
                                   const TensorSpec& spec) {
  VOLTA_TRY(check_spec(spec));
  if (buffer == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a tensor {} needs a buffer", to_string(spec)));
  }
  if (offset < 0 || spec.bytes() > buffer->bytes() || offset > buffer->bytes() - spec.bytes()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} at offset {} does not fit into a buffer of {} bytes",
                            to_string(spec), offset, buffer->bytes()));
  }
  if (offset % dtype_size(spec.dtype) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("offset {} is not a multiple of the element size of {}", offset,
                            to_string(spec)));
  }
  Tensor tensor;
  tensor.spec_ = spec;
  tensor.buffer_ = std::move(buffer);
  tensor.offset_ = offset;
  return tensor;
}

View Tensor::view() const {
  return {buffer_ == nullptr ? nullptr : buffer_->at_offset(offset_), spec_};
}

Result<std::span<std::byte>> Tensor::host_bytes() const {
  if (buffer_ == nullptr) return std::span<std::byte>();
  return buffer_->host_bytes(offset_, bytes());
}

Status Tensor::write_bytes(std::span<const std::byte> source) {
  if (std::ssize(source) != bytes()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} takes {} bytes, not {}", to_string(spec_), bytes(), source.size()));
  }
  return buffer_ == nullptr ? Status() : buffer_->write(offset_, source);
}

Status Tensor::read_bytes(std::span<std::byte> destination) const {
  if (std::ssize(destination) != bytes()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} holds {} bytes, which do not go into {}", to_string(spec_), bytes(),
                            destination.size()));
  }
  return buffer_ == nullptr ? Status() : buffer_->read(offset_, destination);
}

Status Tensor::set_zero() {
  return buffer_ == nullptr ? Status() : buffer_->fill(offset_, bytes(), std::byte{0});
}

Result<Tensor> Tensor::reshape(const Shape& shape) const {
  VOLTA_TRY(check_plain());
  const TensorSpec spec = {spec_.dtype, shape};
  VOLTA_TRY(check_spec(spec));
  if (shape.elements() != elements()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} elements and cannot become {} with {}", to_string(spec_),
                            elements(), to_string(shape), shape.elements()));
  }
  Tensor tensor = *this;
  tensor.spec_ = spec;
  return tensor;
}

Result<Tensor> Tensor::slice(std::int64_t begin, std::int64_t end) const {
  VOLTA_TRY(check_plain());
  if (spec_.shape.rank() == 0 || begin < 0 || begin > end || end > spec_.shape[0]) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rows [{}, {}) are not part of {}", begin, end, to_string(spec_)));
  }
  Tensor tensor = *this;
  tensor.spec_.shape.set(0, end - begin);
  tensor.offset_ += begin * spec_.shape.product(1, spec_.shape.rank()) * dtype_size(spec_.dtype);
  return tensor;
}

Result<Tensor> Tensor::clone_to(const std::shared_ptr<MemoryOwner>& owner) const {
  VOLTA_TRY(Tensor copy, empty(spec_, owner));
  if (host_accessible()) {
    VOLTA_TRY(auto bytes, host_bytes());
    VOLTA_TRY(copy.write_bytes(bytes));
  } else if (copy.host_accessible()) {
    VOLTA_TRY(auto bytes, copy.host_bytes());
    VOLTA_TRY(read_bytes(bytes));
  } else if (buffer_->owner() == owner) {
    VOLTA_TRY(copy.buffer_->copy_from(0, *buffer_, offset_, bytes()));
  } else {  // From one device to another, through the host.
    VOLTA_TRY(Tensor staged, clone_to(host_memory()));
    VOLTA_TRY(auto bytes, staged.host_bytes());
    VOLTA_TRY(copy.write_bytes(bytes));
  }
  return copy;
}

Status Tensor::check_writable() const {
  if (buffer_ == nullptr || buffer_->owner() == nullptr || buffer_->owner()->writable()) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} lies in a mapped file and can only be read", to_string(spec_)));
}

Status Tensor::check_plain() const {
  if (spec_.encoding.plain()) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} can only be used as a whole, by the ops that know its encoding",
                          to_string(spec_)));
}

Status Tensor::check_type(DType wanted) const {
  VOLTA_TRY(check_plain());
  if (wanted == spec_.dtype) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} does not hold {} elements", to_string(spec_), dtype_name(wanted)));
}

}  // namespace volta
