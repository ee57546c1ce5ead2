// The rule by which devices accept tensors.
#include "device/memory_check.h"

#include <fmt/format.h>

namespace volta {

Status check_memory(const Device& device, const Tensor& tensor, bool written,
                    std::string_view what) {
  if (tensor.bytes() == 0) return {};
  const auto& owner = tensor.buffer()->owner();
  if (owner == device.memory()) return {};
  const bool host_device = device.memory() == host_memory();
  if (host_device && tensor.host_accessible() && !written) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} ({}) is not in the memory of device '{}'{}: copy it there first "
                          "(Tensor::clone_to or DeviceHandle::copy_to_device)",
                          what, to_string(tensor.spec()), device.info().id,
                          host_device && written ? ", which would write to it" : ""));
}

}  // namespace volta
