// Who may touch whose memory: the one rule by which devices accept tensors.
#pragma once

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

}  // namespace volta
