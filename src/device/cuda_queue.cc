// CudaQueue: opens a GPU, and turns its errors and faults into Errors.
#include "device/cuda_queue.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "base/environment.h"

namespace volta {

namespace {

// The numbers of a program's calls are kCallsPerProgram * its number + their index.
constexpr unsigned long long kCallsPerProgram = 1ull << 18;
// As many as the bits of the fault word can number.
constexpr unsigned long long kMostPrograms = 1ull << (64 - cuda::kFaultElementBits - 18);

// The least compute capability, in tens, that the kernels need.
constexpr int kLeastArchitecture = 80;

// VOLTA_CUDA_ARCH: kernels for this compute capability at most, e.g. 80 on a GPU of 90.
Result<int> limit_architecture(int architecture) {
  const std::string_view text = environment("VOLTA_CUDA_ARCH");
  if (text.empty()) return architecture;
  int wanted = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), wanted);
  if (error != std::errc() || end != text.end() || wanted < kLeastArchitecture ||
      wanted > architecture) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("VOLTA_CUDA_ARCH: '{}' is not a compute capability from {} to {}, "
                            "which this GPU has",
                            text, kLeastArchitecture, architecture));
  }
  return wanted;
}

}  // namespace

std::unexpected<Error> cuda_error(cudaError_t error, std::string_view doing) {
  // The runtime also keeps the error for cudaGetLastError(), by which the next launch would report
  // it again as its own.
  static_cast<void>(cudaGetLastError());
  const std::string reason =
      fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
  if (error == cudaErrorMemoryAllocation) {
    return fail(ErrorCode::kOutOfMemory, fmt::format("{}: {}", doing, reason));
  }
  // After an error of a kernel every later call of this process reports the same error.
  return fail(ErrorCode::kDevice,
              fmt::format("{}: the GPU reports: {}. If this persists, start the program again; "
                          "`nvidia-smi` shows the state of the GPU",
                          doing, reason));
}

Status cuda_status(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) [[likely]]
    return {};
  return cuda_error(error, doing);
}

Result<std::shared_ptr<CudaQueue>> CudaQueue::create(int index) {
  std::shared_ptr<CudaQueue> queue(new CudaQueue());
  queue->index_ = index;
  VOLTA_TRY(queue->select());
  int major = 0, minor = 0;
  VOLTA_TRY(cuda_status(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index),
                        "reading the GPU's compute capability"));
  VOLTA_TRY(cuda_status(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index),
                        "reading the GPU's compute capability"));
  const int architecture = 10 * major + minor;
  if (architecture < kLeastArchitecture) {
    return fail(ErrorCode::kDevice,
                fmt::format("it has compute capability {}.{}, and Volta needs {}.{} (Ampere) or "
                            "later; use another GPU or --device cpu",
                            major, minor, kLeastArchitecture / 10, kLeastArchitecture % 10));
  }
  VOLTA_TRY(queue->architecture_, limit_architecture(architecture));
  VOLTA_TRY(cuda_status(
      cudaDeviceGetAttribute(&queue->multiprocessors_, cudaDevAttrMultiProcessorCount, index),
      "reading the GPU's properties"));
  VOLTA_TRY(cuda_status(cudaStreamCreateWithFlags(&queue->stream_, cudaStreamNonBlocking),
                        "making a stream"));
  // SAFETY: CUDA writes an address of the size of void* into a pointer, whatever it points to.
  VOLTA_TRY(cuda_status(cudaMalloc(reinterpret_cast<void**>(&queue->fault_), sizeof(*fault_)),
                        "allocating the fault word"));
  VOLTA_TRY(cuda_status(cudaHostAlloc(reinterpret_cast<void**>(&queue->host_fault_),
                                      sizeof(*host_fault_), cudaHostAllocDefault),
                        "allocating pinned memory"));
  *queue->host_fault_ = cuda::kNoFault;
  VOLTA_TRY(cuda_status(cudaMemsetAsync(queue->fault_, 0xFF, sizeof(*fault_), queue->stream_),
                        "clearing the fault word"));
  return queue;
}

CudaQueue::~CudaQueue() {
  if (cudaSetDevice(index_) != cudaSuccess) return;
  // Nothing can be done about an error here; the next use of the GPU reports it.
  if (stream_ != nullptr) {
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  if (fault_ != nullptr) static_cast<void>(cudaFree(fault_));
  if (host_fault_ != nullptr) static_cast<void>(cudaFreeHost(host_fault_));
}

Status CudaQueue::select() const {
  const cudaError_t error = cudaSetDevice(index_);
  if (error == cudaSuccess) [[likely]]
    return {};
  return cuda_error(error, fmt::format("selecting CUDA device {}", index_));
}

cuda::Context CudaQueue::context(unsigned long long call) const {
  return {.stream = stream_,
          .multiprocessors = multiprocessors_,
          .architecture = architecture_,
          .fault = fault_,
          .call = call};
}

Status CudaQueue::wait() {
  VOLTA_TRY(select());
  const std::lock_guard lock(mutex_);
  VOLTA_TRY(cuda_status(
      cudaMemcpyAsync(host_fault_, fault_, sizeof(*fault_), cudaMemcpyDeviceToHost, stream_),
      "waiting for the GPU"));
  VOLTA_TRY(cuda_status(cudaStreamSynchronize(stream_), "waiting for the GPU"));
  const unsigned long long word = *host_fault_;
  if (word == cuda::kNoFault) [[likely]]
    return {};
  VOLTA_TRY(cuda_status(cudaMemsetAsync(fault_, 0xFF, sizeof(*fault_), stream_),
                        "clearing the fault word"));
  return fail(ErrorCode::kInvalidArgument, fault_text(word));
}

// The lock is held.
std::string CudaQueue::fault_text(unsigned long long word) {
  const unsigned long long call = word >> cuda::kFaultElementBits;
  const unsigned long long element = word & ((1ull << cuda::kFaultElementBits) - 1);
  std::string op = "an op whose plan is gone";
  if (const auto after = calls_.upper_bound(call); after != calls_.begin()) {
    const auto& [first, calls] = *std::prev(after);
    if (call - first < calls.size()) op = describe(calls[call - first]);
  }
  return fmt::format("{}: element {} of its index tensor is out of range", op, element);
}

Result<unsigned long long> CudaQueue::add_calls(std::span<const OpCall> calls) {
  if (calls.size() > kCallsPerProgram) {
    return fail(ErrorCode::kUnsupported, fmt::format("a plan of {} steps; on a GPU it may have {}",
                                                     calls.size(), kCallsPerProgram));
  }
  const std::lock_guard lock(mutex_);
  unsigned long long program = 0;
  for (const auto& [first, known] : calls_) {
    if (first != program * kCallsPerProgram) break;
    ++program;
  }
  if (program >= kMostPrograms) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} plans are loaded on this GPU already", calls_.size()));
  }
  calls_.emplace(program * kCallsPerProgram, calls);
  return program * kCallsPerProgram;
}

void CudaQueue::remove_calls(unsigned long long first) {
  const std::lock_guard lock(mutex_);
  calls_.erase(first);
}

}  // namespace volta
