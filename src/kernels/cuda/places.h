// Divides a workspace of a kernel among arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/arithmetic.h"

namespace volta::cuda {

/// Takes arrays one after the other. Each begins at a multiple of 256 bytes; so must the memory.
class Places {
 public:
  static constexpr std::int64_t kAlignment = 256;

  /// Without memory, the arrays are null pointers, and taken() tells how much they need.
  explicit Places(std::byte* memory) : memory_(memory) {}
  template <typename T>
  T* take(std::int64_t count) {
    // SAFETY: the caller gives as much memory as taken() was without memory.
    T* place = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + taken_);
    taken_ += round_up(count * static_cast<std::int64_t>(sizeof(T)), kAlignment);
    return place;
  }
  std::int64_t taken() const { return taken_; }

 private:
  std::byte* memory_;
  std::int64_t taken_ = 0;
};

}  // namespace volta::cuda
