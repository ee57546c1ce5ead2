// CudaMemory: the memory of one GPU, from a pool that keeps what is freed. Private to the CUDA
// device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/result.h"
#include "device/cuda_queue.h"
#include "tensor/buffer.h"

namespace volta {

class CudaMemory final : public MemoryOwner {
 public:
  static Result<std::shared_ptr<CudaMemory>> create(std::shared_ptr<CudaQueue> queue);
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() override;

  Result<void*> allocate(std::int64_t bytes) override;
  void deallocate(void* data, std::int64_t bytes) override;
  bool host_accessible() const override { return false; }
  Status copy_from_host(void* destination, std::span<const std::byte> source) override;
  Status copy_to_host(std::span<std::byte> destination, const void* source) override;
  Status submit_copy_to_host(std::span<std::byte> destination, const void* source) override;
  Status copy_within(void* destination, const void* source, std::int64_t bytes) override;
  Status fill(void* destination, std::byte value, std::int64_t bytes) override;

 private:
  explicit CudaMemory(std::shared_ptr<CudaQueue> queue) : queue_(std::move(queue)) {}

  std::shared_ptr<CudaQueue> queue_;
  cudaMemPool_t pool_ = nullptr;
};

/// Pinned memory of the host: copies from a GPU to it do not wait.
class PinnedMemory final : public MemoryOwner {
 public:
  explicit PinnedMemory(std::shared_ptr<CudaQueue> queue) : queue_(std::move(queue)) {}

  Result<void*> allocate(std::int64_t bytes) override;
  void deallocate(void* data, std::int64_t bytes) override;
  bool host_accessible() const override { return true; }
  Status copy_from_host(void* destination, std::span<const std::byte> source) override;
  Status copy_to_host(std::span<std::byte> destination, const void* source) override;
  Status copy_within(void* destination, const void* source, std::int64_t bytes) override;
  Status fill(void* destination, std::byte value, std::int64_t bytes) override;

 private:
  std::shared_ptr<CudaQueue> queue_;
};

}  // namespace volta
