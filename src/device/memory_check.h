// The rule by which devices accept tensors: which memory they may read and write.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "device/device.h"
#include "tensor/tensor.h"

namespace volta {

/// Success if `device` can use the tensor: its memory belongs to the device, or the device works in
/// plain host memory and only reads a tensor in other host memory (a mapped file). Empty tensors
/// always pass. Otherwise kInvalidArgument, which names `what` ("parameter 'wte'").
Status check_memory(const Device& device, const Tensor& tensor, bool written,
                    std::string_view what);

/// A tensor that an op or a plan uses.
struct TensorUse {
  const Tensor* tensor = nullptr;
  bool written = false;
};
/// Two uses, by index, that share bytes.
struct WrittenOverlap {
  std::size_t written = 0;
  std::size_t other = 0;
};
/// Finds a written tensor that shares bytes with another one; returns nothing if there is none. The
/// planner, the passes and the kernels assume that different operands are different memory, unless
/// they only read it.
std::optional<WrittenOverlap> find_written_overlap(std::span<const TensorUse> uses);

}  // namespace volta
