// Reads and writes the elements of a float tensor in any order, for the conversions between GGUF
// and folders. Knows no file format.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/memory.h"
#include "base/result.h"
#include "tensor/float16.h"
#include "tensor/tensor.h"

namespace volta {

/// The elements of an f32, bf16 or f16 tensor in host memory, as f32. Valid while the tensor is.
class FloatElements {
 public:
  static Result<FloatElements> of(const Tensor& tensor) {
    FloatElements elements;
    elements.dtype_ = tensor.dtype();
    VOLTA_TRY(const std::span<std::byte> bytes, tensor.host_bytes());
    if (tensor.dtype() == DType::kF32) {
      VOLTA_TRY(elements.f32_, as_span<float>(bytes));
    } else {
      VOLTA_TRY(elements.half_, as_span<std::uint16_t>(bytes));
    }
    return elements;
  }

  /// Reads values[k] from element begin + k * stride.
  void get(std::int64_t begin, std::int64_t stride, std::span<float> values) const {
    auto i = static_cast<std::size_t>(begin);
    for (float& value : values) {
      value = dtype_ == DType::kF32    ? f32_[i]
              : dtype_ == DType::kBF16 ? f32_from_bf16(half_[i])
                                       : f32_from_f16(half_[i]);
      i += static_cast<std::size_t>(stride);
    }
  }
  /// Writes values[k] to element begin + k * stride of a tensor whose memory is not read-only.
  /// False if a finite value became infinite in f16.
  [[nodiscard]] bool put(std::int64_t begin, std::int64_t stride, std::span<const float> values) {
    auto i = static_cast<std::size_t>(begin);
    bool fit = true;
    for (const float value : values) {
      if (dtype_ == DType::kF32) {
        f32_[i] = value;
      } else if (dtype_ == DType::kBF16) {
        half_[i] = bf16_from_f32(value);
      } else {
        half_[i] = f16_from_f32(value);
        fit = fit && ((half_[i] & 0x7FFFu) != 0x7C00u || !std::isfinite(value));
      }
      i += static_cast<std::size_t>(stride);
    }
    return fit;
  }

 private:
  DType dtype_ = DType::kF32;
  std::span<float> f32_;
  std::span<std::uint16_t> half_;
};

}  // namespace volta
