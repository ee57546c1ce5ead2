// CudaQueue: one GPU's stream of work. It turns errors of the CUDA runtime into Errors, collects
// the faults that kernels report, and waits. The memory, the programs and the device of one GPU
// share it. Private to the CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/op_call.h"
#include "kernels/cuda/cuda.h"

namespace volta {

/// kOutOfMemory for a failed allocation, otherwise kDevice. `doing` says what was tried.
std::unexpected<Error> cuda_error(cudaError_t error, std::string_view doing);
/// Success, or cuda_error().
Status cuda_status(cudaError_t error, std::string_view doing);

class CudaQueue {
 public:
  /// Opens GPU `index` and makes its stream; kDevice if that fails.
  static Result<std::shared_ptr<CudaQueue>> create(int index);
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;
  ~CudaQueue();

  /// Makes this GPU the calling thread's. Every function that calls the CUDA runtime begins with
  /// it, because the runtime keeps a current GPU for each thread.
  Status select() const;
  cudaStream_t stream() const { return stream_; }
  int index() const { return index_; }
  /// The context for kernels of this queue's work. `call` goes into reports of faults.
  cuda::Context context(unsigned long long call) const;
  int architecture() const { return architecture_; }

  /// Waits for everything that was submitted. Returns an error of the GPU, or else the first fault
  /// that a kernel reported since the last wait, naming its op.
  Status wait();

  /// Registers the calls of a program, so that a fault can name the op; they must live until they
  /// are removed. Returns the number of the first call: call i of the program has this number + i.
  Result<unsigned long long> add_calls(std::span<const OpCall> calls);
  void remove_calls(unsigned long long first);

 private:
  CudaQueue() = default;
  std::string fault_text(unsigned long long word);

  int index_ = 0;
  int multiprocessors_ = 1;
  int architecture_ = 80;
  cudaStream_t stream_ = nullptr;
  unsigned long long* fault_ = nullptr;       ///< In the GPU's memory.
  unsigned long long* host_fault_ = nullptr;  ///< Pinned; a copy of *fault_.
  std::mutex mutex_;  ///< Guards calls_, and the reading and clearing of the fault word.
  std::map<unsigned long long, std::span<const OpCall>> calls_;
};

}  // namespace volta
