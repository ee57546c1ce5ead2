// Many calls of one op in one launch: the updates of all parameters of a step, the sums of all
// gradients, the casts of all weights. There is a call for each parameter, and many are so small
// that a launch of their own takes longer than their work. A plan's program makes the table of a
// group once, in the GPU's memory. The results have the bits of single calls.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/cuda.h"
#include "ops/op.h"

namespace volta::cuda {

/// One call of a group.
struct GroupCall {
  void* data[4] = {};  ///< What the call reads and writes, `elements` elements each; some unused.
  std::int64_t elements = 0;
  float number = 0.0f;   ///< The attribute in which calls of a group may differ.
  bool vectors = false;  ///< All of them are 16-byte aligned.
};
/// A part of a call, which a block takes at once.
struct GroupChunk {
  std::int32_t call = 0;
  std::int32_t index = 0;  ///< Of the chunk in its call.
};

/// A group in the GPU's memory.
struct GroupTable {
  const GroupCall* calls = nullptr;
  const GroupChunk* chunks = nullptr;
  std::int64_t chunk_count = 0;
};

/// The call, if calls of this op can be in a group.
std::optional<GroupCall> group_call(const Op& op, const Args& args);
/// Whether two calls for which group_call gave something can be in the same group: the same op and
/// attributes, except for the `number`, and the same schedule. That neither writes what the other
/// one uses is the caller's affair.
bool same_group(const Op& a, const Args& a_args, const Op& b, const Args& b_args);
/// The chunks of some calls, in order; nothing if there are too many.
std::optional<std::vector<GroupChunk>> group_chunks(std::span<const GroupCall> calls);

/// Submits a group; `op` and `args` are those of one of its calls.
cudaError_t run_group(const Op& op, const Args& args, const GroupTable& table,
                      const Context& context) noexcept;

}  // namespace volta::cuda
