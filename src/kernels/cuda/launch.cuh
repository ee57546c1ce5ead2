// Launches of kernels that may begin while the kernel before them still runs (programmatic
// dependent launch, from compute capability 9.0 on). Such a kernel prepares what it can, e.g. reads
// weights, and calls wait_for_earlier() before it reads or writes anything that an earlier kernel
// may write or read. On older GPUs, and after a kernel that gives no leave, it begins when the
// kernel before it has ended, and the calls do nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

#include "kernels/cuda/common.cuh"

namespace volta::cuda {

/// Waits until all kernels that were launched earlier have ended, and their writes are visible.
/// Every thread calls it. That includes a kernel that has nothing to wait for: the next one relies
/// on this one ending after those before it.
__device__ inline void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Gives the next kernel leave to begin, once all blocks of this one have given it or have ended.
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Launches a kernel that calls wait_for_earlier(). It begins early if the context allows it.
template <typename... Parameters>
cudaError_t launch_early(void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                         std::size_t shared, const Context& context,
                         std::type_identity_t<Parameters>... arguments) {
  // Multiprocessors that divided their memory between L1 cache and shared memory in another way
  // for the kernel before it would have to end that one first, so all ask for the same division.
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[1].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = context.begins_early && context.architecture >= 90 ? 2 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace volta::cuda
