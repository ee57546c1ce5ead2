// One launch for three calls of a decoding step: Rope of the queries, Rope of the keys, KvAppend.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda.h"

namespace volta::cuda {

/// Three calls that follow each other: q is rotated, k is rotated, and k and v are appended.
struct RopeAppend {
  const Rope* rope_q = nullptr;
  const Rope* rope_k = nullptr;
  const KvAppend* append = nullptr;
  Args q, k, kv;
  /// The numbers of the calls, for reports.
  unsigned long long q_call = 0, k_call = 0, kv_call = 0;
};

/// Whether rope_append() takes these calls.
bool rope_append_applies(const RopeAppend& calls);
/// The bits are those of the three ops.
cudaError_t rope_append(const RopeAppend& calls, const Context& context);

}  // namespace volta::cuda
