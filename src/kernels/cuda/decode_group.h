// Groups of consecutive calls of a plan that run as one kernel launch. In a decoding step most ops
// are so small that launching them takes longer than computing them. A group gives the results that
// its calls would give one by one, bit for bit.
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
