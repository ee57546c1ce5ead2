// The bridge from an Op to its CUDA kernels: the visits over all ops, in a translation unit of
// their own because each visit instantiates every op. Private to the CUDA device.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/cuda.h"
#include "ops/op.h"
#include "tensor/tensor_spec.h"

namespace volta {

cudaError_t cuda_run(const Op& op, const cuda::Args& args, const cuda::Context& context) noexcept;
std::int64_t cuda_workspace_bytes(const Op& op, const cuda::ArgShapes& shapes,
                                  const cuda::Context& context);
bool cuda_supports(const Op& op, std::span<const TensorSpec> inputs);

}  // namespace volta
