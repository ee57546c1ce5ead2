// The rule by which devices accept tensors.
#include "device/memory_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

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

std::optional<WrittenOverlap> find_written_overlap(std::span<const TensorUse> uses) {
  struct Extent {
    std::uintptr_t begin, end;
    std::size_t use;
  };
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const Tensor& tensor = *uses[i].tensor;
    if (tensor.bytes() == 0) continue;
    // SAFETY: the address is only compared, never followed.
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.view().data);
    extents.push_back({begin, begin + static_cast<std::uintptr_t>(tensor.bytes()), i});
  }
  std::ranges::sort(extents, {}, &Extent::begin);
  // Of the extents before this one: the one that ends last, and the written one that ends last.
  const Extent* last = nullptr;
  const Extent* last_written = nullptr;
  for (const Extent& extent : extents) {
    const bool written = uses[extent.use].written;
    const Extent* const other = written ? last : last_written;
    if (other != nullptr && extent.begin < other->end) {
      return written ? WrittenOverlap{extent.use, other->use}
                     : WrittenOverlap{other->use, extent.use};
    }
    if (last == nullptr || extent.end > last->end) last = &extent;
    if (written && (last_written == nullptr || extent.end > last_written->end)) {
      last_written = &extent;
    }
  }
  return std::nullopt;
}

}  // namespace volta
