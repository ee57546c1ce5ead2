// Who may touch whose memory: the one rule by which devices accept tensors.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "device/device.h"
#include "tensor/tensor.h"

namespace volta {

/// Success when `device` can use the tensor: its memory is the device's, or the device works in
/// plain host memory and only reads a tensor that lies in other host memory (a mapped file). Empty
/// tensors always pass. kInvalidArgument otherwise, naming `what` ("parameter 'wte'").
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
/// A written tensor that shares bytes with another one, or nothing when there is none. Planner,
/// passes and kernels take different operands for different memory, unless they only read it.
std::optional<WrittenOverlap> find_written_overlap(std::span<const TensorUse> uses);

}  // namespace volta
