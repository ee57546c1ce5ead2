// CudaProgram: the calls of a plan on a GPU. Private to the CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "base/result.h"
#include "device/cuda_queue.h"
#include "device/executable.h"
#include "device/op_call.h"

namespace volta {

/// The first run launches every kernel by itself. The second one records the launches as a CUDA
/// graph, because then every kernel is loaded; from there on a run is one launch of that graph.
class CudaProgram final : public Program {
 public:
  /// `interrupted` may be empty and must outlive the program.
  static Result<std::unique_ptr<Program>> create(std::shared_ptr<CudaQueue> queue,
                                                 std::span<const OpCall> calls,
                                                 const std::function<bool()>& interrupted);
  CudaProgram(const CudaProgram&) = delete;
  CudaProgram& operator=(const CudaProgram&) = delete;
  ~CudaProgram() override;

  Status submit() override;
  Status submit_step(std::size_t step) override;

 private:
  CudaProgram(std::shared_ptr<CudaQueue> queue, std::span<const OpCall> calls,
              const std::function<bool()>& interrupted, unsigned long long first_call)
      : Program(calls.size()),
        queue_(std::move(queue)),
        calls_(calls),
        interrupted_(interrupted),
        first_call_(first_call) {}
  Status launch_step(std::size_t step, cudaStream_t stream);
  Status record();
  Status record_steps(cudaStream_t stream);

  std::shared_ptr<CudaQueue> queue_;
  std::span<const OpCall> calls_;
  const std::function<bool()>& interrupted_;
  unsigned long long first_call_;  ///< The number of the first call, see CudaQueue::add_calls.
  int runs_ = 0;                   ///< Counts to 1.
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace volta
