// View: what a kernel sees of a tensor. A spec and a raw address, contiguous (in row-major order
// unless encoded); no ownership. Made by devices from checked plans, read by kernels. C++20-clean.
#pragma once

#include "tensor/tensor_spec.h"

namespace [[gnu::visibility("default")]] volta {

/// A spec with an address. It inherits the spec, so that nothing can copy some of its fields and
/// forget the others: view.shape is view.spec().shape.
struct View : TensorSpec {
  void* data = nullptr;

  constexpr View() = default;
  constexpr View(void* address, const TensorSpec& spec) : TensorSpec(spec), data(address) {}

  constexpr const TensorSpec& spec() const { return *this; }
  /// The elements as T. The plan that made this view has checked the type.
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace volta
