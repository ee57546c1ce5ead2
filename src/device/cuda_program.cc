// CudaProgram: launches of single units, and the recorded graph of all units.
#include "device/cuda_program.h"

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "device/cuda_dispatch.h"

namespace volta {

Result<std::unique_ptr<Program>> CudaProgram::create(std::shared_ptr<CudaQueue> queue,
                                                     const std::shared_ptr<MemoryOwner>& memory,
                                                     std::span<const OpCall> calls,
                                                     const std::function<bool()>& interrupted) {
  VOLTA_TRY(CudaUnits units, make_units(calls, memory));
  VOLTA_TRY(const unsigned long long first, queue->add_calls(calls));
  return std::unique_ptr<Program>(
      new CudaProgram(std::move(queue), std::move(units), calls, interrupted, first));
}

// A fault that was not read yet stays for the next wait, which then cannot name the op.
CudaProgram::~CudaProgram() {
  if (queue_->select()) {
    static_cast<void>(cudaStreamSynchronize(queue_->stream()));
    if (graph_ != nullptr) static_cast<void>(cudaGraphExecDestroy(graph_));
  }
  queue_->remove_calls(first_call_);
}

Status CudaProgram::launch_step(std::size_t step, cudaStream_t stream) {
  const OpCall& call = calls_[step];
  cuda::Context context = queue_->context(first_call_ + step);
  context.stream = stream;
  const cudaError_t error =
      cuda_run(*call.op, {call.inputs, call.outputs, call.workspace}, context);
  if (error == cudaSuccess) [[likely]]
    return {};
  return cuda_error(error, describe(call));
}

Status CudaProgram::launch_unit(const CudaUnit& unit, cudaStream_t stream) {
  Status status;
  if (unit.is_group()) {
    const OpCall& call = calls_[unit.begin];
    cuda::Context context = queue_->context(first_call_ + unit.begin);
    context.stream = stream;
    const cudaError_t error =
        cuda::run_group(*call.op, {call.inputs, call.outputs, call.workspace}, unit.table, context);
    if (error != cudaSuccess) status = cuda_error(error, describe(call));
  } else {
    status = launch_step(unit.begin, stream);
  }
  if (status) [[likely]]
    return status;
  return std::unexpected(std::move(status).error().with_context(
      fmt::format("step {} of {}", unit.begin + 1, calls_.size())));
}

Status CudaProgram::launch_all() {
  VOLTA_TRY(queue_->select());
  for (const CudaUnit& unit : units_.units) {
    if (calls_[unit.begin].may_stop && interrupted_ && interrupted_()) [[unlikely]]
      return fail(ErrorCode::kInterrupted, "interrupted");
    VOLTA_TRY(launch_unit(unit, queue_->stream()));
  }
  return {};
}

Status CudaProgram::submit_step(std::size_t step) {
  if (calls_[step].may_stop && interrupted_ && interrupted_()) [[unlikely]]
    return fail(ErrorCode::kInterrupted, "interrupted");
  VOLTA_TRY(queue_->select());
  return launch_step(step, queue_->stream());
}

Status CudaProgram::submit() {
  if (graph_ == nullptr) {
    if (runs_ == 0 || calls_.empty()) {
      runs_ = 1;
      return launch_all();
    }
    VOLTA_TRY(record());
  }
  if (calls_.front().may_stop && interrupted_ && interrupted_()) [[unlikely]]
    return fail(ErrorCode::kInterrupted, "interrupted");
  VOLTA_TRY(queue_->select());
  return cuda_status(cudaGraphLaunch(graph_, queue_->stream()), "running a plan");
}

Status CudaProgram::record() {
  VOLTA_TRY(queue_->select());
  // A stream of its own: what other threads submit meanwhile must not be recorded.
  cudaStream_t stream = nullptr;
  VOLTA_TRY(cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                        "making a stream to record a plan"));
  Status status = record_units(stream);
  static_cast<void>(cudaStreamDestroy(stream));
  return status;
}

Status CudaProgram::record_units(cudaStream_t stream) {
  VOLTA_TRY(cuda_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                        "recording a plan"));
  Status status;
  for (const CudaUnit& unit : units_.units) {
    if (status) status = launch_unit(unit, stream);
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (status) status = cuda_status(ended, "recording a plan");
  if (status) status = cuda_status(cudaGraphInstantiate(&graph_, graph, 0), "recording a plan");
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  return status;
}

}  // namespace volta
