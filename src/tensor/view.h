// View: a tensor as kernels see it: a spec and a raw address, without ownership. The elements are
// contiguous, and row-major unless encoded. Devices make views from checked plans; kernels use
// them. C++20-clean.
#pragma once

#include "tensor/tensor_spec.h"

namespace [[gnu::visibility("default")]] volta {

/// A spec with an address. It inherits from the spec instead of copying fields, so that none can be
/// forgotten: view.shape is view.spec().shape.
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
