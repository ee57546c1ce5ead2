// View: what a kernel sees of a tensor. A raw address, a type and a shape, contiguous in row-major
// order; no ownership. Made by devices from checked plans, read by kernels. C++20-clean.
#pragma once

#include <cstddef>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace volta {

struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  /// The elements as T. The plan that made this view has checked the type.
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace volta
