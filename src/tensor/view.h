// View: what a kernel sees of a tensor. A raw address, a type, a shape and an encoding, contiguous
// (in row-major order unless encoded); no ownership. Made by devices from checked plans, read by
// kernels. C++20-clean.
#pragma once

#include <cstddef>

#include "tensor/dtype.h"
#include "tensor/encoding.h"
#include "tensor/shape.h"

namespace volta {

struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  Encoding encoding = {};

  /// The elements as T. The plan that made this view has checked the type.
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace volta
