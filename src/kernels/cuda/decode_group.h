// Groups of consecutive calls of a plan that run as one launch. A decoding step has many small ops,
// and launching each of them takes longer than its work. A group writes the results of all its
// calls, bit for bit as if they ran one by one, so a plan gives the same results with and without
// groups.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/cuda.h"

namespace volta::cuda {

struct DecodeCall {
  const Op* op = nullptr;
  Args args;
  unsigned long long number = 0;    ///< Context::call
  std::uint32_t steady_inputs = 0;  ///< Context::steady_inputs
};

/// How many calls, from the first of these on, make up a group; 1 if it stands alone.
std::size_t decode_group_size(std::span<const DecodeCall> calls, const Context& context);

/// Runs a group of this size, which is larger than 1.
cudaError_t run_decode_group(std::span<const DecodeCall> group, const Context& context);

}  // namespace volta::cuda
