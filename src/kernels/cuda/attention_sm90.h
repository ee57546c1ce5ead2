// Attention in 16 bits with Hopper's own instructions: asynchronous products of a group of four
// warps (wgmma), and copies by the bulk copy engine (TMA). See attention_sm90.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/attention.cuh"

namespace volta::cuda::attention {

/// Whether forward_sm90 computes this call. That depends on the GPU, the type and head_dim, so that
/// a row's bits depend on neither its neighbours nor addresses.
bool forward_sm90_applies(DType dtype, std::int64_t head_dim, const Context& context);

/// The bytes of `taken` below.
inline constexpr std::int64_t kForwardSm90Workspace = sizeof(unsigned);

/// All that Attention can be with these types and sizes. Needs forward_sm90_applies.
/// `taken` is a word of the workspace.
cudaError_t forward_sm90(const Forward& call, unsigned* taken, const Context& context) noexcept;

// The kernels by type and head_dim.
cudaError_t forward_sm90_bf16_64(const Forward& call, unsigned* taken,
                                 const Context& context) noexcept;
cudaError_t forward_sm90_bf16_128(const Forward& call, unsigned* taken,
                                  const Context& context) noexcept;
cudaError_t forward_sm90_f16_64(const Forward& call, unsigned* taken,
                                const Context& context) noexcept;
cudaError_t forward_sm90_f16_128(const Forward& call, unsigned* taken,
                                 const Context& context) noexcept;

}  // namespace volta::cuda::attention
