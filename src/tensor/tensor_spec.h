// TensorSpec: the type, shape and encoding of a tensor, as plain data. The checks for untrusted
// sizes are in tensor/spec.h. C++20-clean, so that kernels of every backend can use it.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/encoding.h"
#include "tensor/shape.h"

namespace [[gnu::visibility("default")]] volta {

/// The description of a tensor, without its data.
struct TensorSpec {
  DType dtype = DType::kF32;
  Shape shape;
  Encoding encoding = {};

  constexpr std::int64_t bytes() const { return encoded_bytes(dtype, shape, encoding); }
  constexpr bool operator==(const TensorSpec&) const = default;
};

}  // namespace volta
