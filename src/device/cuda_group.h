// The units in which a plan is submitted to a GPU: single calls, and groups of calls that one
// launch runs. Groups of updates (kernels/cuda/update_group.h) have a table in the GPU's memory;
// groups of a decoding step (kernels/cuda/decode_group.h) need none. Private to the CUDA device.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/op_call.h"
#include "kernels/cuda/update_group.h"
#include "tensor/buffer.h"

namespace volta {

/// Calls [begin, end) of a plan.
struct CudaUnit {
  std::size_t begin = 0, end = 0;
  cuda::GroupTable table;  ///< If it is a group of updates.

  bool is_group() const { return end - begin > 1; }
  bool of_updates() const { return table.calls != nullptr; }
};

struct CudaUnits {
  std::vector<CudaUnit> units;         ///< In the order of the calls, all of them.
  std::optional<DeviceBuffer> tables;  ///< What the units' tables point to.
};

/// Divides a plan's calls. The calls of a group follow each other in the plan, are of the same op,
/// and none of them reads or writes what another one writes.
Result<CudaUnits> make_units(std::span<const OpCall> calls,
                             const std::shared_ptr<MemoryOwner>& memory);

}  // namespace volta
