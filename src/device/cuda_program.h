// CudaProgram: the calls of a plan on a GPU. Private to the CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/cuda_group.h"
#include "device/cuda_queue.h"
#include "device/executable.h"
#include "device/op_call.h"
#include "kernels/cuda/decode_group.h"
#include "tensor/buffer.h"

namespace volta {

/// A run submits units (cuda_group.h): calls, and groups of calls that one launch runs. A single
/// step, which listeners ask for, is always a call. The first run launches every unit by itself.
/// The second one records the launches as a CUDA graph, because then every kernel is loaded; from
/// there on a run is one launch of that graph.
class CudaProgram final : public Program {
 public:
  /// `interrupted` may be empty and must outlive the program. `memory` is the queue's GPU's.
  static Result<std::unique_ptr<Program>> create(std::shared_ptr<CudaQueue> queue,
                                                 const std::shared_ptr<MemoryOwner>& memory,
                                                 std::span<const OpCall> calls,
                                                 const std::function<bool()>& interrupted);
  CudaProgram(const CudaProgram&) = delete;
  CudaProgram& operator=(const CudaProgram&) = delete;
  ~CudaProgram() override;

  Status submit() override;
  Status submit_step(std::size_t step) override;

 private:
  CudaProgram(std::shared_ptr<CudaQueue> queue, CudaUnits units, std::span<const OpCall> calls,
              const std::function<bool()>& interrupted, unsigned long long first_call)
      : Program(calls.size()),
        queue_(std::move(queue)),
        units_(std::move(units)),
        calls_(calls),
        interrupted_(interrupted),
        first_call_(first_call) {
    describe_calls();
    join_decode_groups();
  }
  /// Fills decode_calls_.
  void describe_calls();
  /// Joins neighbouring units of one call that make up a group of a decoding step.
  void join_decode_groups();
  /// The context for a call or, with its first call, a group.
  cuda::Context context(std::size_t step, cudaStream_t stream, bool begins_early) const;
  /// kInterrupted if the run is to stop before this step.
  Status check_stop(std::size_t step) const;
  Status launch_step(std::size_t step, const cuda::Context& context);
  /// kInterrupted if the run is to stop before this step.
  Status check_stop(std::size_t step) const;
  Status launch_step(std::size_t step, const cuda::Context& context);
  Status launch_unit(const CudaUnit& unit, cudaStream_t stream, bool early);
  /// What is recorded must be whole, so only a run is interrupted. Kernels begin early in recorded
  /// graphs only: outside of them, what other threads submit may come between two kernels, and may
  /// write what the second one reads before it waits.
  Status launch_all(cudaStream_t stream, bool recording);
  Status record();
  Status record_units(cudaStream_t stream);

  std::shared_ptr<CudaQueue> queue_;
  CudaUnits units_;
  std::span<const OpCall> calls_;
  const std::function<bool()>& interrupted_;
  unsigned long long first_call_;  ///< The number of the first call, see CudaQueue::add_calls.
  std::vector<cuda::DecodeCall> decode_calls_;  ///< All calls, by step.
  int runs_ = 0;                                ///< Counts to 1.
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace volta
