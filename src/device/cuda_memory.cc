// CudaMemory: allocations and copies, all in the order of the queue's stream. PinnedMemory: the
// host's side of copies.
#include "device/cuda_memory.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "base/text.h"

namespace volta {

Result<std::shared_ptr<CudaMemory>> CudaMemory::create(std::shared_ptr<CudaQueue> queue) {
  VOLTA_TRY(queue->select());
  std::shared_ptr<CudaMemory> memory(new CudaMemory(std::move(queue)));
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {.type = cudaMemLocationTypeDevice, .id = memory->queue_->index()};
  VOLTA_TRY(cuda_status(cudaMemPoolCreate(&memory->pool_, &properties), "making a memory pool"));
  // What is freed stays in the pool, because giving it back to the driver waits for the GPU.
  auto threshold = std::numeric_limits<std::uint64_t>::max();
  VOLTA_TRY(cuda_status(
      cudaMemPoolSetAttribute(memory->pool_, cudaMemPoolAttrReleaseThreshold, &threshold),
      "making a memory pool"));
  return memory;
}

CudaMemory::~CudaMemory() {
  if (pool_ != nullptr && queue_->select()) static_cast<void>(cudaMemPoolDestroy(pool_));
}

Result<void*> CudaMemory::allocate(std::int64_t bytes) {
  VOLTA_TRY(queue_->select());
  void* data = nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  cudaError_t error = cudaMallocFromPoolAsync(&data, size, pool_, queue_->stream());
  if (error == cudaErrorMemoryAllocation) {
    // The pool may hold freed blocks that are too small: give them back and try again.
    static_cast<void>(cudaGetLastError());
    static_cast<void>(cudaStreamSynchronize(queue_->stream()));
    static_cast<void>(cudaMemPoolTrimTo(pool_, 0));
    error = cudaMallocFromPoolAsync(&data, size, pool_, queue_->stream());
  }
  if (error == cudaSuccess) [[likely]]
    return data;
  static_cast<void>(cudaGetLastError());
  std::size_t free_bytes = 0, total = 0;
  static_cast<void>(cudaMemGetInfo(&free_bytes, &total));
  return cuda_error(error, fmt::format("allocating {} on CUDA device {}, which has {} of {} free",
                                       format_bytes(bytes), queue_->index(),
                                       format_bytes(static_cast<std::int64_t>(free_bytes)),
                                       format_bytes(static_cast<std::int64_t>(total))));
}

// An error of the GPU stays with it, and the next call that can return one reports it.
void CudaMemory::deallocate(void* data, std::int64_t /*bytes*/) {
  if (!queue_->select()) return;
  if (cudaFreeAsync(data, queue_->stream()) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

// From memory that is not pinned, the runtime copies the bytes to a buffer of its own before it
// returns.
Status CudaMemory::copy_from_host(void* destination, std::span<const std::byte> source) {
  VOLTA_TRY(queue_->select());
  return cuda_status(cudaMemcpyAsync(destination, source.data(), source.size(),
                                     cudaMemcpyHostToDevice, queue_->stream()),
                     "copying to the GPU");
}

Status CudaMemory::copy_to_host(std::span<std::byte> destination, const void* source) {
  VOLTA_TRY(submit_copy_to_host(destination, source));
  return queue_->wait();
}

Status CudaMemory::submit_copy_to_host(std::span<std::byte> destination, const void* source) {
  VOLTA_TRY(queue_->select());
  return cuda_status(cudaMemcpyAsync(destination.data(), source, destination.size(),
                                     cudaMemcpyDeviceToHost, queue_->stream()),
                     "copying from the GPU");
}

Status CudaMemory::copy_within(void* destination, const void* source, std::int64_t bytes) {
  VOLTA_TRY(queue_->select());
  return cuda_status(cudaMemcpyAsync(destination, source, static_cast<std::size_t>(bytes),
                                     cudaMemcpyDeviceToDevice, queue_->stream()),
                     "copying within the GPU's memory");
}

Status CudaMemory::fill(void* destination, std::byte value, std::int64_t bytes) {
  VOLTA_TRY(queue_->select());
  return cuda_status(cudaMemsetAsync(destination, std::to_integer<int>(value),
                                     static_cast<std::size_t>(bytes), queue_->stream()),
                     "filling the GPU's memory");
}

Result<void*> PinnedMemory::allocate(std::int64_t bytes) {
  VOLTA_TRY(queue_->select());
  void* data = nullptr;
  VOLTA_TRY(cuda_status(cudaHostAlloc(&data, static_cast<std::size_t>(bytes), cudaHostAllocDefault),
                        "allocating pinned memory"));
  return data;
}

void PinnedMemory::deallocate(void* data, std::int64_t /*bytes*/) {
  if (queue_->select()) static_cast<void>(cudaFreeHost(data));
}

// SAFETY: as with all owners, the caller has checked the ranges.
Status PinnedMemory::copy_from_host(void* destination, std::span<const std::byte> source) {
  std::memcpy(destination, source.data(), source.size());
  return {};
}

Status PinnedMemory::copy_to_host(std::span<std::byte> destination, const void* source) {
  std::memcpy(destination.data(), source, destination.size());
  return {};
}

Status PinnedMemory::copy_within(void* destination, const void* source, std::int64_t bytes) {
  std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  return {};
}

Status PinnedMemory::fill(void* destination, std::byte value, std::int64_t bytes) {
  std::memset(destination, std::to_integer<int>(value), static_cast<std::size_t>(bytes));
  return {};
}

}  // namespace volta
