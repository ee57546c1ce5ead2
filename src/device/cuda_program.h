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
#include "device/cuda_queue.h"
#include "device/executable.h"
#include "device/op_call.h"
#include "kernels/cuda/decode_group.h"

namespace volta {

/// Calls that make up a group (kernels/cuda/decode_group.h) are launched together, unless steps are
/// submitted one by one. The first run launches every kernel by itself. The second one records the
/// launches as a CUDA graph, because then every kernel is loaded; from there on a run is one launch
/// of that graph.
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
        first_call_(first_call) {
    find_groups();
  }
  void find_groups();
  /// The context for a call or, with its first call, a group.
  cuda::Context context(std::size_t step, cudaStream_t stream, bool begins_early) const;
  Status launch_step(std::size_t step, const cuda::Context& context);
  Status launch_group(std::size_t first, std::size_t count, const cuda::Context& context);
  /// With `early`, kernels may begin early. Not outside of a graph: there, what other threads
  /// submit may come between two kernels, and may write what the second one reads before it waits.
  Status launch_all(cudaStream_t stream, bool early);
  Status record();
  Status record_steps(cudaStream_t stream);

  std::shared_ptr<CudaQueue> queue_;
  std::span<const OpCall> calls_;
  const std::function<bool()>& interrupted_;
  unsigned long long first_call_;  ///< The number of the first call, see CudaQueue::add_calls.
  std::vector<cuda::GroupCall> group_calls_;  ///< By step.
  std::vector<std::size_t> groups_;           ///< The first step of each group, and the end.
  int runs_ = 0;                              ///< Counts to 1.
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace volta
